// The communicator: all-reduce between the ranks of a group, on host memory. It owns its scratch memory, its link to
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
#include <string>
#include <string_view>
#include <vector>

#include "base/time.hpp"
#include "collective/builders.hpp"
#include "collective/runner.hpp"
#include "comm/link.hpp"
#include "comm/statistics.hpp"
#include "comm/wait_policy.hpp"

namespace tensorwire::comm {

/// How the packets of the communicator's queue pairs may travel.
enum class PathChoice : std::uint8_t {
  kAuto,     ///< the same-host link where the HCA has one and the peer is on this host, else packets
  kPackets,  ///< RoCEv2 packets always
};

struct CommOptions {
  // The device; see verbs/context.hpp.
  std::string device;  ///< "" automatic, "soft", "mlx5_0:1"
  int gid_index = -1;  ///< -1: the routable RoCE v2 entry is looked up

  PathChoice path = PathChoice::kAuto;
  std::uint32_t queue_pairs_per_peer = 1;
  std::uint8_t dscp = 26;

  std::uint32_t depth = 2;                       ///< sequences in flight for each directed pair; 2 to 64
  std::uint64_t slot_payload_bytes = 256 << 10;  ///< a multiple of 64; must be the same on all ranks
  collective::Thresholds thresholds;

  WaitPolicy wait = WaitPolicy::kAuto;
  Ps operation_timeout = 60 * kSecond;    ///< wall-clock bound of one operation; 0: never
  Ps straggler_warning = 1 * kSecond;     ///< a warning that names who is waited for; 0: never
  std::uint16_t communicator_number = 0;  ///< part of every signature; distinct for communicators of one group

  /// Once true, the operation under way or the next one is aborted: for those who may do no more than set a flag, as a
  /// signal handler. Null: nobody. Outlives the communicator.
  const std::atomic<bool>* abort_flag = nullptr;

  LinkFactory link_factory;  ///< empty: RDMA through libibverbs

  /// For tests that plant a bug: may change a write before it is posted. Empty in every product path.
  std::function<void(WriteRequest&)> fault_hook;
};

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

  /// Registers memory ahead of its first use, which otherwise pays for it. False: see error().
  [[nodiscard]] bool register_buffer(const void* address, std::size_t bytes) noexcept;
  /// To be called before memory that was used or registered is freed or remapped.
  void deregister_buffer(const void* address, std::size_t bytes) noexcept;

  /// From any thread: the operation under way and all later ones fail, here and on all other ranks.
  void abort(const std::string& reason) noexcept;

  /// The error of the last call that returned false, or null.
  [[nodiscard]] const CommError* error() const noexcept;
  /// What was counted so far; a set-up call: it allocates.
  [[nodiscard]] CommStats stats() const;
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
