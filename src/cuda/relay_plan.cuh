// How a relay's operations become jobs of its rails: what each of them takes of a tensor, in how many rounds, with how
// many blocks. What a Relay holds, and pure functions of it; internal to relay*.cpp.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "cuda/communicator_state.hpp"
#include "cuda/driver.cuh"
#include "cuda/range.hpp"
#include "cuda/relay.hpp"
#include "cuda/relay_rail.hpp"
#include "cuda/stream_gates.cuh"

namespace tensorwire::cuda {

/// Slices begin at multiples of this.
inline constexpr std::uint64_t kSliceAlignment = 256;

inline constexpr std::size_t kNever = ~std::size_t{0};

struct RelayHolds {
  explicit RelayHolds(const RelayOptions& asked);

  [[nodiscard]] RelayJob job(collective::Collective collective, OperationKind kind, collective::DType dtype,
                             collective::Op op = collective::Op::kSum, int root = 0) const noexcept;
  [[nodiscard]] bool is_over() const noexcept;

  RelayOptions options;
  std::vector<std::unique_ptr<RelayRail>> rails;
  StreamGates gates;
  std::size_t gated_bytes = kNever;  ///< all-reduces of so many and more wait in the stream
};

[[nodiscard]] bool lies_well(const void* in, const void* out, collective::DType dtype) noexcept;
[[nodiscard]] RelayTensor tensor(const void* data, std::size_t parts, std::size_t part_bytes) noexcept;

/// Shares a whole job out over rails, and cuts each rail's slices into equal pieces, as few as windows have room for,
/// `pieces` of them side by side. All rails take as many rounds.
[[nodiscard]] RelayJobs share_out(const RelayHolds& holds, const RelayJob& whole, std::uint64_t pieces,
                                  std::uint64_t room) noexcept;
/// The same for a two-shot all-reduce; rounds are pieces. Chunks are rounded up to whole units, for which windows need
/// room.
[[nodiscard]] RelayJobs share_out_two_shot(const RelayHolds& holds, const RelayJob& job) noexcept;
[[nodiscard]] std::uint64_t room_for_chunks(const RelayOptions& options) noexcept;

[[nodiscard]] bool is_one_shot(const RelayHolds& holds, std::size_t bytes) noexcept;
[[nodiscard]] RelayJob all_reduce_job(const RelayHolds& holds, const RelayShard& of) noexcept;
[[nodiscard]] Grid grid_for(const RelayJob& job) noexcept;

template <typename Launch>
Status start(const RelayHolds& holds, const RelayJobs& jobs, const Launch& launch) noexcept {
  if (holds.is_over()) return Status::kFailed;
  const Doorbell& bell = jobs.rail[0].doorbell;
  const Request request = Request::unpacked(bell.what);
  const Range range({static_cast<OperationKind>(request.operation), request.dtype, bell.bytes});
  const OnDevice current(holds.options.device);
  return launch(jobs, grid_for(jobs.rail[0])) == cudaSuccess ? Status::kOk : Status::kNotLaunched;
}

}  // namespace tensorwire::cuda
