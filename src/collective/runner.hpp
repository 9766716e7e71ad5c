// The runner executes programs on one rank, sans-I/O: it is told of arrivals and send completions, and acts through
// the Actions it was given. It reads no clock, does no I/O, and allocates nothing once reserve() knew the programs.
//
// It owns the protocol of the directed pairs: sequences, slots, credit, signatures (docs/architecture.md). Several
// sequences may be in flight for each pair. One thread at a time.
//
// Scratch memory, the same layout on every rank, so that a remote offset can be computed here:
//   receive slots [peer][sequence mod depth], then heads [peer][number mod depth] in the room of whole slots, then send
//   slots [segment mod send_slots]. Slots are slot_bytes long. Heads are headers alone, of what goes ahead of segments:
//   the invitations that came, those that went, and every message 0 that went so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/round_up.hpp"
#include "collective/immediate.hpp"
#include "collective/plan.hpp"
#include "collective/reduce.hpp"
#include "collective/signature.hpp"
#include "collective/slot_views.hpp"

namespace tensorwire::collective {

/// Local bytes and the key that the transport gave for the memory they lie in (an lkey; transports without keys ignore
/// it).
struct Piece {
  const std::byte* address = nullptr;
  std::size_t bytes = 0;
  std::uint32_t key = 0;
};

inline constexpr std::uint64_t kNoToken = ~std::uint64_t{0};

/// One write into a peer's memory, announced by its immediate. Up to two pieces; none for credit only.
struct WriteRequest {
  std::uint32_t peer = 0;
  std::span<const Piece> pieces;
  std::uint64_t remote_offset = 0;  ///< from the start of the peer's scratch memory; or as `to_output` says
  std::uint32_t immediate = 0;
  std::uint64_t token = kNoToken;  ///< if not kNoToken: on_sent(token) is owed when the source is no longer needed
  /// The target is the peer's output: `window` is what the peer gave as Segment::output_window, and remote_offset adds
  /// up from the offset that it gave with it. A peer can say anything: who resolves it checks it.
  bool to_output = false;
  std::uint32_t window = 0;
};

/// What the runner makes happen. Implemented over a link by comm, by a random network in the tests, in the simulator.
class Actions {
 public:
  virtual ~Actions() = default;
  /// Queues the write; source bytes stay valid until the peer has consumed them or, with a token, until on_sent. False:
  /// the transport failed (it knows why).
  virtual bool write(const WriteRequest& request) noexcept = 0;
  virtual void copy(const std::byte* from, std::byte* to, std::size_t bytes) noexcept = 0;
  virtual void reduce(const Reduction& what, std::span<const std::byte* const> operands, std::byte* output,
                      std::byte* second_output, std::size_t bytes) noexcept = 0;
};

/// Actions whose memory work is done by the calling CPU.
class HostActions : public Actions {
 public:
  void copy(const std::byte* from, std::byte* to, std::size_t bytes) noexcept override;
  void reduce(const Reduction& what, std::span<const std::byte* const> operands, std::byte* output,
              std::byte* second_output, std::size_t bytes) noexcept override;
};

struct RunnerConfig {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint32_t depth = 2;       ///< sequences in flight for each directed pair, 2 to 64
  std::uint64_t slot_bytes = 0;  ///< header included; a multiple of 64
  std::uint16_t communicator = 0;
  std::uint32_t send_slots = 2;  ///< segments under way on this rank, 2 to 64; its own affair, peers need not agree
  std::uint32_t messages_in_place = 0;  ///< of one sequence, that may lie elsewhere than in their slot

  [[nodiscard]] std::uint64_t scratch_bytes() const noexcept { return send_slot(0) + send_slots * slot_bytes; }
  [[nodiscard]] std::uint64_t receive_slot(std::uint32_t peer, std::uint64_t sequence) const noexcept {
    return (std::uint64_t{peer} * depth + sequence % depth) * slot_bytes;
  }
  [[nodiscard]] std::uint64_t send_slot(std::uint64_t instance) const noexcept {
    return receive_slot(ranks, 0) + round_up(kHeads * heads_bytes(), slot_bytes) + instance % send_slots * slot_bytes;
  }
  /// Where the peer's invitations come, where those for it leave from, and every message 0 that goes ahead.
  [[nodiscard]] std::uint64_t invitation_in(std::uint32_t peer, std::uint64_t number) const noexcept {
    return receive_slot(ranks, 0) + (std::uint64_t{peer} * depth + number % depth) * kSlotHeaderBytes;
  }
  [[nodiscard]] std::uint64_t invitation_out(std::uint32_t peer, std::uint64_t number) const noexcept {
    return invitation_in(peer, number) + heads_bytes();
  }
  [[nodiscard]] std::uint64_t announcement_out(std::uint32_t peer, std::uint64_t sequence) const noexcept {
    return invitation_in(peer, sequence) + 2 * heads_bytes();
  }
  /// Receives that must be posted for each peer before it may write: the data messages of all sequences in flight, the
  /// credit writes that can be on their way (each tells at least one of at most `depth` untold sequences), and the
  /// invitations that are open.
  [[nodiscard]] std::uint32_t receive_depth(std::uint32_t messages_per_sequence) const noexcept {
    return depth * messages_per_sequence + 2 * depth;
  }

 private:
  static constexpr std::uint64_t kHeads = 3;
  [[nodiscard]] std::uint64_t heads_bytes() const noexcept { return std::uint64_t{ranks} * depth * kSlotHeaderBytes; }
};

/// One sequence number's worth of a collective.
struct Segment {
  const Program* program = nullptr;  ///< known to reserve(); must live until the segment is complete
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::uint32_t input_key = 0;
  std::uint32_t operation_sequence = 0;  ///< these two go into the signature
  std::uint64_t operation_count = 0;
  /// Where the program sources writes from the output, or peers write it (Program::peers_write_output): the key of the
  /// output as in Piece, and what peers are told. The offset is that of `output` in the window.
  std::uint32_t output_key = 0;
  OutputWindow output_window = {};
  /// Set by open(): what it took, the sequence of message 0 or the number of the invitation.
  bool opened = false;
  std::uint64_t opening = 0;
};

/// The operation that a peer's last message was of, as far as this rank took it.
struct Heard {
  bool any = false;
  Collective collective = Collective::kAllReduce;
  std::uint32_t number = 0;  ///< of the operation in the communicator; of send/recv: in its pair
};

enum class Failure : std::uint8_t { kNone, kTransport, kSignature, kProtocol };

/// Is told of every step that is done: for traces.
class StepWatcher {
 public:
  virtual ~StepWatcher() = default;
  /// @param number of the segment on this rank, from 0; @param step its index in the program
  virtual void step_done(const Segment& segment, std::uint64_t number, std::uint16_t step) noexcept = 0;
};

/// The first thing that went wrong; sticky.
struct RunnerError {
  Failure failure = Failure::kNone;
  std::uint32_t peer = 0;
  SignatureField field = SignatureField::kNone;  ///< kSignature
  Signature mine, theirs;                        ///< kSignature
  const char* detail = "";                       ///< kProtocol: static text

  explicit operator bool() const noexcept { return failure != Failure::kNone; }
};
/// The cause in words, without the rank's host: "rank 2 disagrees on count: 1024 there, 512 here".
[[nodiscard]] std::string to_string(const RunnerError& error);

struct RunnerCounters {
  std::uint64_t segments = 0, writes = 0, credit_writes = 0, bytes_written = 0, arrivals = 0, credit_stalls = 0;
  std::uint64_t bytes_copied = 0;  ///< by the CPU, reductions aside
};

class Runner {
 public:
  /// `scratch` has config.scratch_bytes() bytes, aligned to 64; `scratch_key` as in Piece.
  Runner(const RunnerConfig& config, std::byte* scratch, std::uint32_t scratch_key, Actions& actions);

  /// Null: nobody. It outlives the runner.
  void watch_steps(StepWatcher* watcher) noexcept { watcher_ = watcher; }

  /// Makes room for a program that is new; the only call that allocates. @throws Error when it does not fit the slots.
  void reserve(const Program& program);

  /// Whether begin() may be called now: an instance is free and its send slot is no longer needed.
  [[nodiscard]] bool can_begin() const noexcept;
  /// Whether the next sequence towards the peer has a free slot there, as far as is known.
  [[nodiscard]] bool has_room(std::uint32_t peer) const noexcept {
    return pairs_[peer].next_send < pairs_[peer].peer_consumed + config_.depth;
  }
  /// Whether message 0 of the next sequence from the peer, which no segment holds yet, is in.
  [[nodiscard]] bool has_arrived(std::uint32_t peer, std::uint32_t message = 0) const noexcept;
  /// Starts a segment; needs can_begin(). Segments complete in any order, are begun in the same order on all ranks.
  void begin(const Segment& segment) noexcept;

  // runner_opening.cpp: of programs that Program::opens(), the part that only tells the peer can be done before, when
  // there is no knowing how long the peer will let this rank wait. It holds no instance up.
  [[nodiscard]] bool can_open(const Program& program) const noexcept;
  /// Needs can_open(). What sends opens in the order in which the pair's other segments begin, what receives in the
  /// order of the messages; both are begun in that order, too.
  void open(Segment& segment) noexcept;
  /// Whether an opened segment, the next one of its kind, would wait for nothing but the transport now, or fails.
  [[nodiscard]] bool can_go_on(const Segment& opened) const noexcept;

  /// @param in_place where the bytes are, if not in the slot
  void on_arrival(std::uint32_t peer, std::uint32_t immediate, const InPlace& in_place = {}) noexcept;
  void on_sent(std::uint64_t token) noexcept;
  /// After a batch of events: gives credit back where a peer could wait for it.
  /// @param all  also where a later write of the plan would carry it: none may come for long
  void flush_credit(bool all = false) noexcept;

  [[nodiscard]] std::uint64_t begun() const noexcept { return begun_; }
  /// Segments [0, completed()) are all complete.
  [[nodiscard]] std::uint64_t completed() const noexcept { return completed_; }
  [[nodiscard]] bool idle() const noexcept { return begun_ == completed_; }

  [[nodiscard]] const RunnerError& error() const noexcept { return error_; }
  [[nodiscard]] const RunnerCounters& counters() const noexcept { return counters_; }
  /// A peer that the oldest incomplete segment waits for and what for, or ranks() if none: names a straggler.
  struct Waiting {
    std::uint32_t peer;
    const char* what;
  };
  [[nodiscard]] Waiting waiting_for() const noexcept;
  /// Likewise the next segment, where it cannot begin.
  [[nodiscard]] Waiting waiting_to_begin() const noexcept;
  [[nodiscard]] Heard last_heard(std::uint32_t peer) const noexcept;

 private:
  /// Both directions between this rank and one peer. Counts never wrap; only their low 12 bits travel.
  struct Pair {
    std::uint64_t next_send = 0;          ///< sequences towards the peer that segments hold
    std::uint64_t peer_consumed = 0;      ///< of these, as far as the peer has told
    std::uint64_t next_receive = 0;       ///< sequences from the peer that segments hold
    std::uint64_t consumed = 0;           ///< of these, released in order
    std::uint64_t told = 0;               ///< `consumed` as the peer knows it, or will
    std::uint64_t heard = 0;              ///< 1 + the highest sequence from which any message came
    std::uint64_t untold_since = 0;       ///< completed_ when `consumed` first went past `told`
    std::uint64_t released = 0;           ///< bit [sequence % depth]: released, but an earlier one is not
    bool owes_credit = false;             ///< the plan sends nothing back that could carry it
    std::uint64_t next_invitation = 0;    ///< invitations of this rank to the peer that are taken
    std::uint64_t begun_invitations = 0;  ///< of these: segments hold them, or held them
    std::uint64_t accepted = 0;           ///< of the peer's invitations, those that segments of this rank hold
    std::uint64_t settled = 0;            ///< of the peer's invitations: all before came, and segments hold them
    std::uint64_t invited = 0;            ///< bit [number % depth]: it came, but is not settled
    Heard last_released;                  ///< the operation of the last slot that was given back
  };

  /// A bit for each message of a sequence that is in.
  struct Arrived {
    std::array<std::uint64_t, (kMaxMessages + 63) / 64> words{};

    [[nodiscard]] bool has(std::uint32_t message) const noexcept {
      return (words[message / 64] >> message % 64 & 1) != 0;
    }
    void add(std::uint32_t message) noexcept { words[message / 64] |= std::uint64_t{1} << message % 64; }
  };

  /// A segment under way. Everything is sized by reserve(); each step enters `ready` once.
  struct Instance {
    Segment segment;
    std::uint64_t number = 0;
    bool active = false;
    Signature signature;
    std::vector<std::uint16_t> pending, ready, blocked;
    std::uint32_t ready_head = 0, ready_tail = 0, blocked_count = 0, done = 0;
    std::uint64_t invitation = 0;                                ///< the number of it, where the program opens
    std::vector<std::uint64_t> send_sequence, receive_sequence;  ///< by peer
    std::vector<std::uint16_t> send_peers;                       ///< of the program, which may be gone afterwards
  };

  void fail_protocol(std::uint32_t peer, const char* detail) noexcept;
  /// The peer that may still need what the next segment's send slot holds; ranks for none.
  [[nodiscard]] std::uint32_t holder_of_send_slot(const Instance& instance) const noexcept;
  /// Takes the next sequence from the peer for the segment, and what has arrived of it already.
  void claim(Instance& instance, std::uint32_t peer) noexcept;
  void take_message(Instance& instance, const Program& program, std::uint32_t peer, std::uint32_t message) noexcept;
  void take_credit(std::uint32_t peer, std::uint32_t credit) noexcept;
  void unblock(std::uint32_t peer) noexcept;
  void run(Instance& instance) noexcept;
  /// False: the step must wait for credit.
  bool execute(Instance& instance, std::uint16_t index) noexcept;
  bool write(Instance& instance, std::uint16_t index) noexcept;
  void finish_step(Instance& instance, std::uint16_t index) noexcept;

  // runner_opening.cpp
  /// False: the step must wait.
  bool write_opening(const Instance& instance) noexcept;
  void tell(const Segment& segment, std::uint64_t number) noexcept;
  [[nodiscard]] bool is_invited(const Pair& pair, std::uint64_t number) const noexcept;
  /// The lowest number of an invitation to the peer whose segment is not complete.
  [[nodiscard]] std::uint64_t oldest_invitation(std::uint32_t peer) const noexcept;
  void number_invitation(Instance& instance) noexcept;
  void take_invitation(std::uint32_t peer, std::uint32_t number) noexcept;
  void settle_invitations(Pair& pair) noexcept;
  /// Where the header of that peer's signature is.
  [[nodiscard]] const std::byte* header_from(const Instance& instance, std::uint32_t peer) const noexcept;

  /// Adds the pair's credit to the immediate.
  void post(WriteRequest request, Immediate immediate) noexcept;
  [[nodiscard]] std::uint32_t key_of(const Instance& instance, Place place) const noexcept;
  void match(const Instance& instance, const Step& step) noexcept;
  void copy(const Instance& instance, const Step& step) noexcept;
  void reduce(const Instance& instance, const Step& step) noexcept;
  void release(const Instance& instance, std::uint32_t peer) noexcept;
  /// One thing that the step waited for has come.
  static void satisfy(Instance& instance, std::uint16_t index) noexcept;
  void finish_if_done(Instance& instance) noexcept;
  /// Bytes that a step reads. Null: the error is set, for the peer's message is not what the plan says.
  [[nodiscard]] const std::byte* source_of(const Instance& instance, const Location& location,
                                           std::uint64_t bytes) noexcept;
  /// These bytes of a slot that the peer filled, header included; null where its message has other ones.
  [[nodiscard]] const std::byte* received(std::uint32_t peer, std::uint64_t sequence, std::uint64_t offset,
                                          std::uint64_t bytes) const noexcept;
  [[nodiscard]] std::byte* target_of(const Instance& instance, const Location& location) const noexcept;
  [[nodiscard]] std::size_t slot_index(std::uint32_t peer, std::uint64_t sequence) const noexcept {
    return std::size_t{peer} * config_.depth + sequence % config_.depth;
  }
  /// Segments may hold more sequences than a pair has slots: those beyond the window wait for their turn.
  [[nodiscard]] std::size_t owner_index(std::uint32_t peer, std::uint64_t sequence) const noexcept {
    return std::size_t{peer} * config_.send_slots + sequence % config_.send_slots;
  }

  RunnerConfig config_;
  std::byte* scratch_;
  std::uint32_t scratch_key_;
  Actions* actions_;
  StepWatcher* watcher_ = nullptr;
  std::vector<Pair> pairs_;
  std::vector<Instance> instances_;
  std::vector<Arrived> arrived_;  ///< by slot_index
  SlotViews views_;               ///< by slot_index
  std::vector<Instance*> owner_;  ///< by owner_index: the segment that holds the sequence
  std::vector<const std::byte*> operands_;
  std::uint64_t begun_ = 0;
  std::uint64_t completed_ = 0;
  RunnerError error_;
  RunnerCounters counters_;
};

}  // namespace tensorwire::collective
