#include "cuda/relay_plan.cuh"

#include <algorithm>

#include "base/round_up.hpp"

namespace tensorwire::cuda {

using collective::Collective;

namespace {

constexpr std::uint32_t kThreads = 512;
/// A rail's grid of this many blocks fills and empties windows as fast as PCIe goes.
constexpr std::uint64_t kMostBlocks = 32;

constexpr std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) noexcept { return (a + b - 1) / b; }

bool lies_well(const void* in, const void* out, collective::DType dtype) noexcept {
  return collective::known(dtype) && on_boundary(in, collective::element_bytes(dtype)) &&
         on_boundary(out, collective::element_bytes(dtype));
}

/// [offset, offset + bytes) of each part, as far as parts go.
RelayTensor slice_of(const RelayTensor& whole, std::uint64_t offset, std::uint64_t bytes) noexcept {
  RelayTensor slice = whole;
  slice.bytes = std::min(bytes, whole.bytes - std::min(whole.bytes, offset));
  if (slice.data != nullptr) slice.data += offset;
  return slice;
}

bool is_set(const std::uint64_t& word) noexcept { return __atomic_load_n(&word, __ATOMIC_ACQUIRE) != 0; }

}  // namespace

RelayHolds::RelayHolds(const RelayOptions& asked) : options(asked) {
  for (std::uint32_t rail = 0; rail < asked.rails; ++rail) {
    rails.push_back(std::make_unique<RelayRail>(asked.windows_on_gpu, asked.window_bytes));
  }
}

RelayJob RelayHolds::job(Collective collective, OperationKind kind, collective::DType dtype, collective::Op op,
                         int root) const noexcept {
  RelayJob made;
  made.element_bytes = static_cast<std::uint32_t>(collective::element_bytes(dtype));
  made.bound_ns = static_cast<std::uint64_t>(options.operation_bound / kNanosecond);
  made.rank = static_cast<std::uint32_t>(options.rank);
  made.ranks = static_cast<std::uint32_t>(options.ranks);
  made.divisor = options.divisor != 0 ? options.divisor : made.ranks;
  made.gathers = collective == Collective::kAllGather;
  made.doorbell.what =
      Request{static_cast<std::uint8_t>(collective), static_cast<std::uint8_t>(dtype), static_cast<std::uint8_t>(op),
              static_cast<std::uint8_t>(kind), static_cast<std::uint32_t>(root)}
          .packed();
  return made;
}

bool RelayHolds::is_over() const noexcept {
  return std::ranges::any_of(
      rails, [](const auto& rail) { return is_set(rail->board.release.failed) || is_set(rail->board.error); });
}

bool lies_well(const void* in, const void* out, collective::DType dtype) noexcept {
  return collective::known(dtype) && on_boundary(in, collective::element_bytes(dtype)) &&
         on_boundary(out, collective::element_bytes(dtype));
}

RelayTensor tensor(const void* data, std::size_t parts, std::size_t part_bytes) noexcept {
  auto* const bytes = const_cast<std::byte*>(static_cast<const std::byte*>(data));  // an input is only read
  return {bytes, static_cast<std::uint32_t>(parts), part_bytes, part_bytes};
}

RelayJobs share_out(const RelayHolds& holds, const RelayJob& whole, std::uint64_t pieces, std::uint64_t room) noexcept {
  const std::uint64_t part = std::max(whole.in.bytes, whole.out.bytes);
  const std::uint64_t wanted = std::clamp<std::uint64_t>(part / holds.options.least_slice_bytes, 1, holds.rails.size());
  const std::uint64_t slice = std::max(round_up(divide_up(part, wanted), kSliceAlignment), kSliceAlignment);
  const std::uint64_t most = room / std::max<std::uint64_t>(pieces, 1) / kUnitBytes * kUnitBytes;
  RelayJobs jobs;
  jobs.rails = static_cast<std::uint32_t>(std::max<std::uint64_t>(divide_up(part, slice), 1));
  for (std::uint32_t rail = 0; rail < jobs.rails; ++rail) {
    RelayJob& job = jobs.rail[rail];
    job = whole;
    holds.rails[rail]->put_into(job);
    job.in = slice_of(whole.in, rail * slice, slice);
    job.out = slice_of(whole.out, rail * slice, slice);
    const std::uint64_t longest = std::min(slice, part);
    job.rounds = std::max<std::uint64_t>(divide_up(longest, most), 1);
    job.piece_bytes = round_up(divide_up(longest, job.rounds), kUnitBytes);
    job.doorbell.count = job.piece_bytes / job.element_bytes;
    if (rail != 0) job.doorbell.what &= ~kBeginsOperation;
  }
  return jobs;
}

Grid grid_for(const RelayJob& job) noexcept {
  const std::uint64_t bytes = std::max(job.in.parts, job.out.parts) * job.piece_bytes;
  const std::uint64_t blocks = divide_up(bytes, std::uint64_t{kThreads} * kUnitBytes);
  return {static_cast<std::uint32_t>(std::clamp<std::uint64_t>(blocks, 1, kMostBlocks)), kThreads, false};
}

std::uint64_t room_for_chunks(const RelayOptions& options) noexcept {
  return options.window_bytes - static_cast<std::uint64_t>(options.ranks) * kUnitBytes;
}

RelayJobs share_out_two_shot(const RelayHolds& holds, const RelayJob& job) noexcept {
  RelayJobs jobs = share_out(holds, job, 1, room_for_chunks(holds.options));
  for (std::uint32_t rail = 0; rail < jobs.rails; ++rail) {
    RelayJob& part = jobs.rail[rail];
    part.doorbell.count = divide_up(part.piece_bytes / kUnitBytes, part.ranks) * kUnitBytes / part.element_bytes;
  }
  return jobs;
}

bool is_one_shot(const RelayHolds& holds, std::size_t bytes) noexcept {
  return holds.options.ranks <= 2 || bytes <= holds.options.one_shot_bytes;
}

RelayJob all_reduce_job(const RelayHolds& holds, const RelayShard& of) noexcept {
  const std::size_t bytes = of.count * collective::element_bytes(of.dtype);
  RelayJob job = holds.job(is_one_shot(holds, bytes) ? Collective::kAllGather : Collective::kAllToAll,
                           OperationKind::kAllReduce, of.dtype, of.op);
  job.in = tensor(of.in, 1, bytes);
  job.out = tensor(of.out, 1, bytes);
  job.doorbell.bytes = of.operation_bytes;
  if (!of.begins) job.doorbell.what &= ~kBeginsOperation;
  return job;
}

}  // namespace tensorwire::cuda
