// Memory on symbols instead of bytes: what a byte holds is an expression over the ranks' contributions, and ranges of
// bytes that hold the same are kept as one. Internal to check*.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/check_graph.hpp"

namespace tensorwire::collective {

using Expression = std::uint32_t;

/// Every expression once. A sum is a list of terms in the order in which they are added; a sum of sums is not
/// flattened, because rounding makes it another value.
class Expressions {
 public:
  /// An operand of a sum: it takes `shift` bytes further on in the inputs than the first one does.
  struct Term {
    Expression expression = 0;
    std::int64_t shift = 0;
    auto operator<=>(const Term&) const = default;
  };

  /// The input of a rank in a plan.
  [[nodiscard]] Expression contribution(std::uint32_t plan, std::uint32_t rank);
  /// The header that a rank puts at the start of its first message.
  [[nodiscard]] Expression header(std::uint32_t plan, std::uint32_t rank);
  /// `op` as the step says: of an average, partial sums are sums.
  [[nodiscard]] Expression combine(Op op, const std::vector<Term>& terms);
  /// Whether it is what `op` makes of contributions: an average divides once, and last.
  [[nodiscard]] bool is_made_by(Op op, Expression expression) const;
  /// "((x1 + x2) + x0)", "average(x0 + x1)", "max(x0, x1)".
  [[nodiscard]] std::string text(Expression expression) const;
  /// The ranks that it adds up, in order, each as often as it occurs; `aligned`: whether all at the same place of the
  /// tensor, and of this plan.
  struct Leaves {
    std::vector<std::uint32_t> ranks;
    bool aligned = true;
  };
  [[nodiscard]] Leaves leaves(Expression expression, std::uint32_t plan) const;
  [[nodiscard]] std::span<const Term> terms(Expression expression) const noexcept { return entries_[expression].terms; }
  [[nodiscard]] bool is_sum(Expression expression) const noexcept { return !entries_[expression].terms.empty(); }

 private:
  struct Entry {
    std::uint32_t plan = 0, rank = 0;  ///< of a leaf
    bool is_header = false;
    Op op = Op::kSum;         ///< of a sum
    std::vector<Term> terms;  ///< of a sum
    auto operator<=>(const Entry&) const = default;
  };
  Expression intern(Entry entry);
  [[nodiscard]] std::size_t end_of_run(std::span<const Term> terms, std::size_t first) const;

  std::vector<Entry> entries_;
  std::map<Entry, Expression> known_;
};

/// What a range holds: byte i of it is byte `base + i` of the expression's first input.
struct Value {
  Expression expression = 0;
  std::int64_t base = 0;
  bool operator==(const Value&) const = default;
  [[nodiscard]] Value at(std::uint64_t bytes) const noexcept {
    return {expression, base + static_cast<std::int64_t>(bytes)};
  }
};

/// One stretch of memory.
class Region {
 public:
  struct Range {
    std::uint64_t begin = 0, end = 0;
    Value value;
  };
  void write(std::uint64_t begin, std::uint64_t end, Value value);
  /// The ranges inside of [begin, end); what was never written is left out.
  [[nodiscard]] std::vector<Range> read(std::uint64_t begin, std::uint64_t end) const;

 private:
  std::vector<Range> ranges_;  ///< ascending, apart
};

/// Which memory a step means, over all plans of a sequence: slots come back after `depth` sequences of their pair, the
/// output may be the input.
class MemoryMap {
 public:
  struct Address {
    std::uint32_t region = 0;
    std::uint64_t offset = 0;
  };
  struct Limits {
    std::uint64_t begin = 0, end = 0;  ///< offsets that the plan may touch
  };

  MemoryMap(const HappensBefore& graph, const CheckOptions& options);

  /// A place as the steps of a program name it. `kPeerSlot` is the slot that the peer writes to.
  [[nodiscard]] Address address(std::uint32_t plan, std::uint32_t rank, const Location& location) const;
  /// Where a write of `rank` lands.
  [[nodiscard]] Address target(std::uint32_t plan, std::uint32_t rank, const Step& write) const;
  /// Where the headers of slots are.
  [[nodiscard]] Address send_header(std::uint32_t plan, std::uint32_t rank) const;
  [[nodiscard]] Address peer_header(std::uint32_t plan, std::uint32_t rank, std::uint32_t peer) const;
  /// Where a write with a signature takes its header from, and where it puts it.
  [[nodiscard]] Address header_source(std::uint32_t plan, std::uint32_t rank, const Step& write) const;
  [[nodiscard]] Address header_target(std::uint32_t plan, std::uint32_t rank, const Step& write) const;
  /// Where a rank looks for what its peer means: at the invitation, where it awaits one.
  [[nodiscard]] Address header_from(std::uint32_t plan, std::uint32_t rank, std::uint32_t peer) const;
  /// What of the place's region a step may touch.
  [[nodiscard]] Limits limits(std::uint32_t plan, std::uint32_t rank, Place place) const;

  [[nodiscard]] std::uint32_t regions() const noexcept { return regions_; }

 private:
  [[nodiscard]] std::uint32_t slot_region(std::uint32_t plan, std::uint32_t owner, std::uint32_t writer) const;
  enum class Head : std::uint8_t { kInvitationIn, kInvitationOut, kAnnouncementOut };
  [[nodiscard]] Address head(Head kind, std::uint32_t owner, std::uint32_t peer, std::uint32_t number) const;

  const HappensBefore* graph_;
  const CheckOptions* options_;
  std::uint32_t first_send_slot_ = 0, first_peer_slot_ = 0, first_head_ = 0, regions_ = 0;
};

/// Runs the steps of all ranks on symbols, in the order of the graph.
class SymbolicExecution {
 public:
  SymbolicExecution(const HappensBefore& graph, const MemoryMap& map);

  /// @return a step that reads what nobody wrote, touches what is outside, or adds up fractions of elements.
  [[nodiscard]] std::optional<Verdict> run();
  /// After run(): what is in the output of a rank, a gap being left out.
  [[nodiscard]] std::vector<Region::Range> output(std::uint32_t plan, std::uint32_t rank) const;
  [[nodiscard]] Expressions& expressions() noexcept { return expressions_; }

 private:
  [[nodiscard]] std::optional<Verdict> execute(Node node, std::uint32_t plan, std::uint32_t rank, const Step& step);
  [[nodiscard]] std::optional<Verdict> reduce(Node node, std::uint32_t plan, std::uint32_t rank, const Step& step);
  /// Copies what is at `from` to `to`.
  [[nodiscard]] std::optional<Verdict> move(Node node, MemoryMap::Address from, MemoryMap::Address to,
                                            std::uint64_t bytes);
  [[nodiscard]] std::optional<Verdict> outside(Node node, std::uint32_t plan, std::uint32_t rank,
                                               const Step& step) const;

  const HappensBefore* graph_;
  const MemoryMap* map_;
  Expressions expressions_;
  std::vector<Region> memory_;
};

}  // namespace tensorwire::collective
