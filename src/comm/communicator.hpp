// The communicator: collectives between the ranks of a group, on host memory. It owns its scratch memory, its link to
// the peers, its runner and its programs; the Group must outlive it. One thread at a time, except abort().
//
// The data path returns bool. The first error is sticky: every later call returns false at once, and error() says in
// one line what happened and which rank is to blame.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.hpp"
#include "collective/builders.hpp"
#include "collective/runner.hpp"
#include "comm/link.hpp"
#include "comm/statistics.hpp"
#include "comm/wait_policy.hpp"

namespace tensorwire::bootstrap {
class MeetingPlaces;
}

namespace tensorwire::comm {

struct GpuSource;

/// How the packets of the communicator's queue pairs may travel.
enum class PathChoice : std::uint8_t {
  kAuto,     ///< as TENSORWIRE_MAPPED says; then the same-host link where the HCA has one, else packets
  kPackets,  ///< RoCEv2 packets always
  kDevice,   ///< the HCA carries everything, over its same-host link where it has one
  kMapped,   ///< between ranks of one host in memory that they map of each other, or an error
};

struct CommOptions {
  // The device; see verbs/context.hpp.
  std::string device;  ///< "" automatic, "soft", "mlx5_0:1"
  int gid_index = -1;  ///< -1: the routable RoCE v2 entry is looked up

  PathChoice path = PathChoice::kAuto;
  std::uint32_t queue_pairs_per_peer = 1;
  std::uint8_t dscp = 26;

  std::uint32_t depth = 2;  ///< sequences in flight for each directed pair; 2 to 64
  /// A multiple of 64; must be the same on all ranks. 0: by the number of ranks, see slot_payload_for.
  std::uint64_t slot_payload_bytes = 256 << 10;
  collective::Thresholds thresholds;
  collective::Order order = collective::Order::kAny;  ///< what algorithms may do to sums; the same on all ranks

  WaitPolicy wait = WaitPolicy::kAuto;
  Ps operation_timeout = 60 * kSecond;    ///< wall-clock bound of one operation; 0: never
  Ps straggler_warning = 1 * kSecond;     ///< a warning that names who is waited for; 0: never
  std::uint16_t communicator_number = 0;  ///< part of every signature; distinct for communicators of one group

  std::uint64_t lineage = 0;  ///< a number for how the ranks came together: refused where they disagree

  /// Once true, the operation under way or the next one is aborted: for those who may do no more than set a flag, as a
  /// signal handler. Null: nobody. Outlives the communicator.
  const std::atomic<bool>* abort_flag = nullptr;

  /// Results go straight into outputs, whatever their size, and nothing is copied from a rank's input to its own
  /// output: that, and every sum, are the caller's. So buffers may be memory that the CPU cannot touch. No all-reduce
  /// or reduce-scatter then.
  bool moves_only = false;

  LinkFactory link_factory;  ///< empty: RDMA through libibverbs

  // For tests that plant a bug; empty in every product path.
  std::function<void(WriteRequest&)> fault_hook;        ///< may change a write before it is posted
  std::function<void(collective::Program&)> plan_hook;  ///< may change a program when it is built
};

/// 256 KiB for up to 16 ranks, then so much less that the slots of all peers together stay below 9 MiB at a depth of
/// two, but not less than 16 KiB. A rank's share of a tensor shrinks with their number, too.
[[nodiscard]] std::uint64_t slot_payload_for(std::uint32_t ranks) noexcept;

enum class CommErrorKind : std::uint8_t {
  kArgument,
  kPeerFailed,
  kDisagreement,
  kTimeout,
  kAborted,
  kTransport,
  kInternal
};

struct CommError {
  CommErrorKind kind = CommErrorKind::kInternal;
  int peer = -1;     ///< the rank to blame, -1 for none
  std::string line;  ///< for people
};

/// One collective call. What the buffers hold is as collective::Shape counts.
struct Call {
  collective::Collective collective = collective::Collective::kAllReduce;
  const void* in = nullptr;  ///< broadcast: of the root only
  void* out = nullptr;
  std::size_t count = 0;
  collective::DType dtype = collective::DType::kFloat32;
  collective::Op op = collective::Op::kSum;
  int root = 0;  ///< broadcast
  /// All-to-all where the blocks differ: as collective::BuildOptions::counts, with `count` the largest. Read until the
  /// operation is over.
  std::span<const std::uint64_t> counts;
};

/// One message between two ranks.
struct Transfer {
  bool sends = false;      ///< this rank sends, else it receives
  int peer = 0;            ///< this rank itself is fine where it both sends and receives
  void* buffer = nullptr;  ///< only read where this rank sends
  std::size_t count = 0;
  collective::DType dtype = collective::DType::kFloat32;
};

/// What one look at an operation under way found.
enum class Progress : std::uint8_t {
  kDone,    ///< it is complete
  kWorked,  ///< something came in: look again
  kIdle,    ///< nothing to do now
  kFailed,  ///< see error()
};

class Communicator {
 public:
  /// A collective call: every rank of the group creates the communicator at the same point with equal options.
  /// @throws Error: a device or GID that cannot be used, options that disagree (naming the rank), a rank that never
  /// came.
  [[nodiscard]] static std::unique_ptr<Communicator> create(bootstrap::Group& group, const CommOptions& options = {});
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// out = sum over ranks of in, element by element, in rank order, accumulated in fp32: the same bits on all ranks.
  /// Returns when `out` is complete and neither buffer is needed any more. `out` may equal `in`; any other overlap is
  /// an error. @return false: see error(). An argument error is not sticky and sends nothing; all others are.
  [[nodiscard]] bool all_reduce(const void* in, void* out, std::size_t count, collective::DType dtype,
                                collective::Op op = collective::Op::kSum) noexcept;

  /// Any collective. In place, where the output's part that is this rank's own is the input (reduce-scatter: the other
  /// way round); any other overlap is an error. As all_reduce otherwise.
  [[nodiscard]] bool run(const Call& call) noexcept;
  /// All of these messages, in any order between different peers, in the order given between two ranks: returns when
  /// all are over. Peers call it with the counterparts, in one call or in several.
  [[nodiscard]] bool run(std::span<const Transfer> transfers) noexcept;

  // The same in steps, for who has operations of several communicators under way: after a begin() that returned true,
  // advance() until it says kDone or kFailed. Nothing else may be called between. advance() never sleeps.
  [[nodiscard]] bool begin(const Call& call) noexcept;
  [[nodiscard]] bool begin(std::span<const Transfer> transfers) noexcept;
  [[nodiscard]] Progress advance() noexcept;

  /// Why begin() would refuse it, if it would.
  [[nodiscard]] std::optional<std::string> problem_with(const Call& call) const;
  [[nodiscard]] std::optional<std::string> problem_with(const Transfer& transfer) const;

  /// How many elements the buffers of a call have on this rank.
  [[nodiscard]] collective::Extent extent_of(const Call& call) const;

  /// Registers memory ahead of its first use, which otherwise pays for it. False: see error().
  [[nodiscard]] bool register_buffer(const void* address, std::size_t bytes) noexcept;
  /// Likewise, for peers to write results into it.
  [[nodiscard]] bool register_output(void* address, std::size_t bytes) noexcept;
  /// To be called before memory that was used or registered is freed or remapped.
  void deregister_buffer(const void* address, std::size_t bytes) noexcept;

  /// From any thread: the operation under way and all later ones fail, here and on all other ranks.
  void abort(const std::string& reason) noexcept;

  /// Ends it for good, well or failed: its queue pairs go to ERR and its registrations are gone, so that nothing of a
  /// peer arrives here any more. Questions may follow, and operations, which fail.
  void retire(const std::string& why) noexcept;
  /// Where its ranks meet again to go on without some of them. Null where it has no peers.
  [[nodiscard]] std::shared_ptr<const bootstrap::MeetingPlaces> meeting_places() const noexcept;

  /// The error of the last call that returned false, or null.
  [[nodiscard]] const CommError* error() const noexcept;
  /// What was counted so far; a set-up call: it allocates.
  [[nodiscard]] CommStats stats() const;
  /// The runner's part of them, at the cost of a few loads.
  [[nodiscard]] collective::RunnerCounters counters() const noexcept;
  /// Operations run on this rank's GPU as well, from now on until leave_gpu(): traces and flight records tell of them.
  void watch_gpu(GpuSource source);
  void leave_gpu() noexcept;
  /// A counter of the device that the communicator runs over, by its mlx5 name ("port_xmit_packets",
  /// "out_of_sequence"); nothing where it has none of that name. The whole device counts, for all its users: take
  /// differences.
  [[nodiscard]] std::optional<std::uint64_t> device_counter(std::string_view name) const;
  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  /// The algorithm that an all-reduce of this size takes.
  [[nodiscard]] collective::Algorithm algorithm_for(std::size_t count, collective::DType dtype) const noexcept;
  /// One line for people: device, path to the peers, wait policy, scratch bytes.
  [[nodiscard]] std::string describe() const;

 private:
  class State;
  explicit Communicator(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace tensorwire::comm
