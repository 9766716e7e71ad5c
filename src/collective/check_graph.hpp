// The happens-before graph of a sequence of plans: one node for each step of each rank, and one for the moment in which
// a rank begins a plan. Its edges are what the runner guarantees: needs, arrivals, acknowledgements, credit, and the
// re-use of a send slot. Internal to check*.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collective/check.hpp"

namespace tensorwire::collective {

using Node = std::uint32_t;

/// Of sequences, and the invitation.
inline constexpr std::uint32_t kMessageNumbers = kInvitationMessage + 1;

/// A step, or (step == kNoStep) the begin of a plan on a rank.
struct NodeName {
  std::uint32_t plan = 0;
  std::uint32_t rank = 0;
  std::uint16_t step = kNoStep;
};

class HappensBefore {
 public:
  HappensBefore(std::span<const Plan* const> sequence, const CheckOptions& options);

  /// Steps that name what does not exist. Call first, then pair_up(), then order().
  [[nodiscard]] std::optional<Verdict> malformed() const;
  /// Finds the other end of every message. @return a message that nobody awaits, a wait without a source, a slot that
  /// is not given back exactly once.
  [[nodiscard]] std::optional<Verdict> pair_up();
  /// Builds the edges and orders the nodes. The caller's own order (a rank calls the next collective when this one is
  /// through) takes part here. @return a circle, if there is one.
  [[nodiscard]] std::optional<Verdict> order();

  [[nodiscard]] Node node(std::uint32_t plan, std::uint32_t rank, std::uint16_t step) const noexcept {
    return first_[std::size_t{plan} * ranks_ + rank] + (step == kNoStep ? 0U : step + 1U);
  }
  [[nodiscard]] NodeName name(Node node) const noexcept;
  /// Every node, each behind all that happens before it. After order().
  [[nodiscard]] const std::vector<Node>& ordered() const noexcept { return ordered_; }
  [[nodiscard]] std::uint32_t position(Node node) const noexcept { return position_[node]; }

  /// For each pair: whether the first surely happens before the second (a node does before itself). The caller's own
  /// order does not count here: operations of several threads may overlap.
  [[nodiscard]] std::vector<bool> precede(std::span<const std::pair<Node, Node>> pairs) const;

  /// The sequence number of the directed pair that `plan` takes; its slot is that modulo the depth.
  [[nodiscard]] std::uint32_t pair_sequence(std::uint32_t plan, std::uint32_t from, std::uint32_t to) const noexcept {
    return pair_sequence_[(std::size_t{plan} * ranks_ + from) * ranks_ + to];
  }
  /// Whether the program of `rank` awaits the invitation of a peer, and the number of that.
  [[nodiscard]] bool is_invited(std::uint32_t plan, std::uint32_t rank, std::uint32_t by) const noexcept {
    return arrival_steps_[std::size_t{plan} * ranks_ + rank][std::size_t{by} * kMessageNumbers + kInvitationMessage] !=
           kNoStep;
  }
  [[nodiscard]] std::uint32_t invitation_number(std::uint32_t plan, std::uint32_t from,
                                                std::uint32_t to) const noexcept {
    return invitation_number_[(std::size_t{plan} * ranks_ + from) * ranks_ + to];
  }
  /// A header that may go ahead of the segment: an invitation, or the announcement of what waits for one.
  [[nodiscard]] bool is_opening(std::uint32_t plan, std::uint32_t rank, const Step& step) const noexcept {
    if (step.kind != StepKind::kWrite || !step.with_signature) return false;
    return step.message == kInvitationMessage || is_invited(plan, rank, step.peer);
  }
  /// The arrival of a write at its peer.
  [[nodiscard]] Node arrival_of(std::uint32_t plan, std::uint32_t rank, const Step& write) const noexcept;
  [[nodiscard]] const Program& program(std::uint32_t plan, std::uint32_t rank) const noexcept {
    return sequence_[plan]->programs[rank];
  }
  [[nodiscard]] std::uint32_t ranks() const noexcept { return ranks_; }
  [[nodiscard]] std::uint32_t plans() const noexcept { return static_cast<std::uint32_t>(sequence_.size()); }

 private:
  using Edge = std::pair<Node, Node>;

  // check_form.cpp
  [[nodiscard]] std::optional<Verdict> index_waits(std::uint32_t plan);
  [[nodiscard]] std::optional<Verdict> match_messages(std::uint32_t plan) const;

  void connect_steps(std::uint32_t plan, std::uint32_t rank);
  void connect_credit(std::uint32_t from, std::uint32_t to);
  void connect_invitations(std::uint32_t from, std::uint32_t to);
  void connect_begins(std::uint32_t rank);
  [[nodiscard]] std::optional<Verdict> sort();
  [[nodiscard]] Verdict circle(const std::vector<std::uint32_t>& waits) const;
  [[nodiscard]] bool precede_locally(Node from, Node to) const;

  std::vector<const Plan*> sequence_;
  CheckOptions options_;
  std::uint32_t ranks_ = 0;
  std::vector<Node> first_;                                ///< [plan * ranks + rank], and one behind the last
  std::vector<std::vector<std::uint16_t>> arrival_steps_;  ///< [plan * ranks + rank][peer * kMessageNumbers + message]
  std::vector<std::uint16_t> release_steps_;               ///< [(plan * ranks + rank) * ranks + peer]
  std::vector<std::uint32_t> pair_sequence_, invitation_number_;
  std::vector<Edge> edges_;
  std::vector<Edge> callers_order_;
  std::vector<std::uint32_t> first_before_;  ///< by node, into before_
  std::vector<Node> before_;
  std::vector<Node> ordered_;
  std::vector<std::uint32_t> position_;
};

/// "rank 1, step 4 of plan 2: reduce ..."
[[nodiscard]] std::string line_of(const HappensBefore& graph, Node node);
[[nodiscard]] Verdict counter_example(const HappensBefore& graph, Node at, std::string what,
                                      std::initializer_list<Node> trace = {});

}  // namespace tensorwire::collective
