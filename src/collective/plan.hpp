// A collective as data. A Program is what one rank does for one sequence number of its pairs: a list of steps and, for
// each step, the earlier steps it needs. Programs are built, checked and printed before a byte moves; the runner
// (runner.hpp) executes one. A Plan is the programs of all ranks, for checkers and printers.
//
// Programs are immutable once built and hold offsets only, never addresses: many operations share one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collective/types.hpp"

namespace tensorwire::collective {

/// A slot begins with this many bytes of header, which hold the signature; the payload keeps its alignment.
inline constexpr std::uint32_t kSlotHeaderBytes = 64;
/// Chunks of a split tensor begin at multiples of this, so that no two ranks share a cache line.
inline constexpr std::uint32_t kChunkAlignment = 64;
/// Messages that one sequence number may carry from a rank to a peer.
inline constexpr std::uint32_t kMaxMessages = 254;
/// The number of a message that belongs to no sequence and takes no slot: a rank tells a peer where its output is for
/// what the peer has to send, with its signature, however long that is before either begins a segment for it.
inline constexpr std::uint8_t kInvitationMessage = 0xfe;
static_assert(kMaxMessages == kInvitationMessage, "every lower number may be a message of a sequence");
inline constexpr std::uint32_t kMaxRanks = 1024;

/// What is done: everything that all ranks must agree on.
struct Shape {
  std::uint32_t ranks = 1;
  /// Elements. All-reduce, broadcast, send/recv: of the tensor. Reduce-scatter: that each rank receives. All-gather:
  /// that each rank sends. All-to-all: that each rank sends to each, or the most that any does. Barrier: 0.
  std::uint64_t count = 0;
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  Collective collective = Collective::kAllReduce;
  std::uint16_t root = 0;  ///< broadcast: who has the tensor; send/recv: the sender; else 0
  std::uint16_t peer = 0;  ///< send/recv: the receiver; else 0

  bool operator==(const Shape&) const = default;
  /// Of `count` elements.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return count * element_bytes(dtype); }
};

/// Where bytes lie, seen from the rank that runs the step.
enum class Place : std::uint8_t {
  kNone,
  kInput,       ///< the user's tensor that goes in
  kOutput,      ///< the user's result; may be the input
  kSendSlot,    ///< the library's memory that writes may be sourced from after the operation is over
  kPeerSlot,    ///< this rank's slot that `peer` writes into (for the target of kWrite: `peer`'s slot for this rank)
  kPeerOutput,  ///< target of kWrite only: the output of `peer`, which its message 0 told where to find
};

struct Location {
  Place place = Place::kNone;
  std::uint16_t peer = 0;
  std::uint64_t offset = 0;  ///< bytes; in slots, from the start of the payload
};

enum class StepKind : std::uint8_t {
  kCopy,     ///< source -> target, local
  kWrite,    ///< source -> target in the peer's slot or output, announced by message number `message`; done when posted
  kSent,     ///< done when write `write_step` no longer needs its source
  kArrival,  ///< done when the peer's message number `message` is in
  kMatch,    ///< the signatures of all arrivals it needs equal this rank's; nothing may touch kOutput before
  kReduce,   ///< `operands`, in their order, combined by `op` -> target and second_target
  kRelease,  ///< the peer's slot may be overwritten
};

struct Step {
  StepKind kind = StepKind::kCopy;
  std::uint8_t message = 0;
  std::uint16_t peer = 0;
  Op op = Op::kSum;              ///< kReduce; an average divides by the number of ranks
  bool with_signature = false;   ///< kWrite: the slot header goes first, in the same message
  std::uint16_t write_step = 0;  ///< kSent
  std::uint64_t bytes = 0;
  Location source;
  Location target;
  Location second_target;  ///< kReduce: the same result once more; kNone for no
  std::uint32_t first_operand = 0, operand_count = 0;
  std::uint32_t first_need = 0, need_count = 0;
  std::uint32_t first_dependent = 0, dependent_count = 0;
};

[[nodiscard]] std::string_view name_of(StepKind kind) noexcept;

inline constexpr std::uint16_t kNoStep = 0xffff;

/// What one rank does. Made by ProgramBuilder::finish(), which fills the derived fields.
struct Program {
  Algorithm algorithm = Algorithm::kOneShot;
  Shape shape;
  std::uint32_t rank = 0;
  std::uint32_t group_ranks = 1;  ///< hierarchical: ranks of a group
  std::vector<Step> steps;
  std::vector<Location> operands;
  std::vector<std::uint16_t> needs;

  // Derived.
  std::vector<std::uint16_t> dependents;  ///< the reverse of needs
  std::vector<std::uint16_t> pending;     ///< by step: needs, and one more for the event a kSent or kArrival waits for
  std::vector<std::uint16_t> arrival_steps;  ///< [peer * messages + message] -> step, or kNoStep
  std::vector<std::uint16_t> sent_steps;     ///< by step: the kSent of a kWrite, or kNoStep
  std::vector<std::uint16_t> send_peers;     ///< peers that this rank writes to, ascending
  std::vector<std::uint16_t> receive_peers;  ///< peers that write to this rank, ascending
  std::uint32_t messages = 0;                ///< 1 + the highest message number that this rank sends or awaits
  std::uint64_t slot_payload_bytes = 0;      ///< the most that a slot (of peers or for sending) holds
  bool peers_write_output = false;           ///< message 0, or the invitation, tells them where this rank's output is
  bool holds_send_slot = false;              ///< some write has no kSent: its source must outlive the segment
  bool invites = false;                      ///< sends an invitation to its only peer
  std::uint16_t invitation = kNoStep;        ///< the kArrival of its only peer's invitation

  /// Its signature goes ahead of the segment, which need not have begun: see Runner::open.
  [[nodiscard]] bool opens() const noexcept { return invites || invitation != kNoStep; }
  /// The kArrival of a message, or kNoStep.
  [[nodiscard]] std::uint16_t arrival_step(std::uint32_t peer, std::uint32_t message) const noexcept {
    if (message == kInvitationMessage) return invitation;
    return message < messages ? arrival_steps[std::size_t{peer} * messages + message] : kNoStep;
  }
  [[nodiscard]] std::span<const std::uint16_t> needs_of(const Step& step) const noexcept {
    return {needs.data() + step.first_need, step.need_count};
  }
  [[nodiscard]] std::span<const std::uint16_t> dependents_of(const Step& step) const noexcept {
    return {dependents.data() + step.first_dependent, step.dependent_count};
  }
  [[nodiscard]] std::span<const Location> operands_of(const Step& step) const noexcept {
    return {operands.data() + step.first_operand, step.operand_count};
  }
};

struct Plan {
  std::vector<Program> programs;  ///< by rank
};

/// Puts steps together; each add returns the step's index, to be named in later needs.
class ProgramBuilder {
 public:
  ProgramBuilder(Algorithm algorithm, const Shape& shape, std::uint32_t rank, std::uint32_t group_ranks = 1);

  std::uint16_t copy(Location source, Location target, std::uint64_t bytes, std::vector<std::uint16_t> needs = {});
  /// @param message number within the sequence, from 0; number 0 carries the signature.
  std::uint16_t write(std::uint32_t peer, std::uint8_t message, Location source, std::uint64_t target_offset,
                      std::uint64_t bytes, std::vector<std::uint16_t> needs = {});
  /// The same into the peer's output; message is not 0, and the peer's message 0 must be matched before.
  std::uint16_t write_output(std::uint32_t peer, std::uint8_t message, Location source, std::uint64_t output_offset,
                             std::uint64_t bytes, std::vector<std::uint16_t> needs);
  /// Tells the only peer where this rank's output is.
  std::uint16_t invite(std::uint32_t peer);
  std::uint16_t sent(std::uint16_t write_step);
  /// @param message may be kInvitationMessage, where the peer is the only one
  std::uint16_t arrival(std::uint32_t peer, std::uint8_t message);
  /// Of a message that the peer writes into this rank's output.
  std::uint16_t arrival_in_output(std::uint32_t peer, std::uint8_t message);
  std::uint16_t match(std::vector<std::uint16_t> arrivals);
  std::uint16_t reduce(const std::vector<Location>& operands, Location target, Location second_target,
                       std::uint64_t bytes, std::vector<std::uint16_t> needs);
  /// Likewise, but more contributions follow: of an average only the sum is taken.
  std::uint16_t reduce_part(const std::vector<Location>& operands, Location target, std::uint64_t bytes,
                            std::vector<std::uint16_t> needs);
  std::uint16_t release(std::uint32_t peer, std::vector<std::uint16_t> needs);

  /// @throws Error when the program breaks a rule of its own (too many steps, a need that is not an earlier step).
  [[nodiscard]] Program finish();

 private:
  std::uint16_t add(Step step, const std::vector<std::uint16_t>& needs);
  std::uint16_t add_write(std::uint32_t peer, std::uint8_t message, Location source, Location target,
                          std::uint64_t bytes, const std::vector<std::uint16_t>& needs);

  Program program_;
};

/// One line per step, for people: `tensorwire plan`, test failures.
[[nodiscard]] std::string to_string(const Program& program);
[[nodiscard]] std::string to_string(const Program& program, std::size_t step);
[[nodiscard]] std::string to_string(const Plan& plan);
/// All programs and steps as one JSON object, for tools.
[[nodiscard]] std::string to_json(const Plan& plan);

}  // namespace tensorwire::collective
