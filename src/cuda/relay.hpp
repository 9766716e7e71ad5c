// Collectives of GPUs that do not reach each other: kernels that hand windows of pinned memory to the host, and wait
// for it to bring the results (relay.cu). A Relay owns the windows, the doorbells and the GPU's side of their order;
// who carries the bytes between hosts is the caller's, in a thread of its own: next(), then finish(), one round after
// the other.
//
// A call launches one kernel on the caller's stream and returns. It may be captured into a graph. All ranks make the
// same calls in the same order. One thread at a time launches; one thread serves each rail; fail() and failure() are
// for any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/time.hpp"
#include "collective/types.hpp"
#include "cuda/communicator.hpp"
#include "cuda/relay_board.hpp"

namespace tensorwire::cuda {

struct RelayOptions {
  int rank = 0;
  int ranks = 1;
  int device = 0;
  Ps operation_bound = 60 * kSecond;                      ///< of each wait for the host on the GPU
  std::uint32_t rails = 1;                                ///< at most kMostRails
  std::size_t least_slice_bytes = std::size_t{32} << 10;  ///< of a part: smaller ones are not shared out over rails
  std::size_t window_bytes = std::size_t{4} << 20;        ///< what a round brings or takes at most; a multiple of 256
  bool windows_on_gpu = false;                            ///< else in pinned host memory
  /// The largest all-reduce of more than two ranks that takes one round instead of two for each piece.
  std::size_t one_shot_bytes = std::size_t{32} << 10;
  std::uint32_t divisor = 0;  ///< of averages; 0: `ranks`, else what is given in are sums already
};

/// A tensor that an all-reduce of the ranks brings on its way, in steps.
struct RelayShard {
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;    ///< at most Relay::most_shard_bytes()
  std::uint32_t place = 0;  ///< 0, 1, 0, ... of one that follows another
  collective::DType dtype = collective::DType::kFloat32;
  collective::Op op = collective::Op::kSum;
  bool begins = true;               ///< an operation, of
  std::size_t operation_bytes = 0;  ///< so many bytes in all
};

/// One round, as a kernel asked for it; the same on all ranks. One of all-gather (in place), all-to-all (of which this
/// rank's own block may stay away), broadcast (likewise at the root) and barrier.
struct Round {
  std::uint64_t number = 0;  ///< from 1
  collective::Collective collective = collective::Collective::kBarrier;
  collective::DType dtype = collective::DType::kFloat32;
  int root = 0;
  std::size_t count = 0;    ///< as collective::Shape counts
  bool begins = false;      ///< an operation, which may take several rounds
  std::uint32_t gate = 0;   ///< as Doorbell::gate
  std::uint64_t bytes = 0;  ///< of the whole operation
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
};

struct RelayHolds;

class Relay {
 public:
  /// @throws Error
  explicit Relay(const RelayOptions& options);
  /// Waits for the GPU; fail() comes before, or kernels may wait for their bound.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // The collectives of tensorwire.h, as it says, of equal counts; device memory, aligned to its elements.
  Status all_reduce(const void* in, void* out, std::size_t count, collective::DType dtype, collective::Op op,
                    Stream stream) noexcept;
  Status all_gather(const void* in, void* out, std::size_t count, collective::DType dtype, Stream stream) noexcept;
  Status reduce_scatter(const void* in, void* out, std::size_t count, collective::DType dtype, collective::Op op,
                        Stream stream) noexcept;
  Status broadcast(const void* in, void* out, std::size_t count, collective::DType dtype, int root,
                   Stream stream) noexcept;
  Status all_to_all(const void* in, void* out, std::size_t count, collective::DType dtype, Stream stream) noexcept;
  Status barrier(Stream stream) noexcept;

  // An all-reduce in steps, each a kernel that does not wait for what it rings for itself: post() of one shard, then
  // turn() and collect() of it, with other kernels between. One shard may be posted after another one's turn() and
  // before its collect(). turn() is needed by more than two ranks; else it does nothing.
  Status post(const RelayShard& shard, Stream stream) noexcept;
  Status turn(const RelayShard& shard, Stream stream) noexcept;
  Status collect(const RelayShard& shard, Stream stream) noexcept;
  [[nodiscard]] std::size_t most_shard_bytes() const noexcept;

  /// Tries whether streams can wait for the host without a kernel, also in graphs. Empty, or why not.
  [[nodiscard]] std::string try_stream_waits();
  /// From now on all-reduces of so many bytes and more wait so: the same on all ranks, and where it can be done.
  void wait_in_stream_from(std::size_t bytes) noexcept;

  [[nodiscard]] std::uint32_t rails() const noexcept;
  /// The memory that a rail's rounds read and write: to be registered.
  [[nodiscard]] std::span<std::byte> windows_in(std::uint32_t rail) const noexcept;
  [[nodiscard]] std::span<std::byte> windows_out(std::uint32_t rail) const noexcept;

  /// The round that a kernel rang for after the rail's last one that was finished, if it has. Costs a load.
  [[nodiscard]] std::optional<Round> next(std::uint32_t rail) const noexcept;
  /// Its results are in `out`.
  void finish(std::uint32_t rail, const Round& round) noexcept;
  /// When the GPU was where in a round: complete once the next one has been rung for, kept for kDoorbells rounds.
  [[nodiscard]] RelayTimes times(std::uint32_t rail, std::uint64_t number) const noexcept;

  /// Ends it for good: waiting kernels return within microseconds, later ones at once.
  void fail(int peer) noexcept;
  /// Why it is over. Reads host memory only.
  [[nodiscard]] std::optional<Failure> failure() const noexcept;

 private:
  Status all_reduce_in_steps(const RelayShard& whole, Stream stream) noexcept;

  std::unique_ptr<RelayHolds> holds_;
};

}  // namespace tensorwire::cuda
