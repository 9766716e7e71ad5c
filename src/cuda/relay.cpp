#include "cuda/relay.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "base/round_up.hpp"
#include "cuda/communicator_state.hpp"
#include "cuda/driver.cuh"
#include "cuda/range.hpp"
#include "cuda/relay_rail.hpp"

namespace tensorwire::cuda {

namespace {

using collective::Collective;

constexpr std::uint32_t kThreads = 512;
/// A rail's grid of this many blocks fills and empties windows as fast as PCIe goes.
constexpr std::uint64_t kMostBlocks = 32;
/// Slices begin at multiples of this.
constexpr std::uint64_t kSliceAlignment = 256;

template <typename Word>
Word acquire(const Word& from) noexcept {
  return __atomic_load_n(&from, __ATOMIC_ACQUIRE);
}

constexpr std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) noexcept { return (a + b - 1) / b; }

bool lies_well(const void* in, const void* out, collective::DType dtype) noexcept {
  return collective::known(dtype) && on_boundary(in, collective::element_bytes(dtype)) &&
         on_boundary(out, collective::element_bytes(dtype));
}

RelayTensor tensor(const void* data, std::size_t parts, std::size_t part_bytes) noexcept {
  auto* const bytes = const_cast<std::byte*>(static_cast<const std::byte*>(data));  // an input is only read
  return {bytes, static_cast<std::uint32_t>(parts), part_bytes, part_bytes};
}

/// [offset, offset + bytes) of each part, as far as parts go.
RelayTensor slice_of(const RelayTensor& whole, std::uint64_t offset, std::uint64_t bytes) noexcept {
  RelayTensor slice = whole;
  slice.bytes = std::min(bytes, whole.bytes - std::min(whole.bytes, offset));
  if (slice.data != nullptr) slice.data += offset;
  return slice;
}

}  // namespace

struct RelayHolds {
  explicit RelayHolds(const RelayOptions& asked) : options(asked) {
    for (std::uint32_t rail = 0; rail < asked.rails; ++rail) {
      rails.push_back(std::make_unique<RelayRail>(asked.windows_on_gpu, asked.window_bytes));
    }
  }

  [[nodiscard]] RelayJob job(Collective collective, OperationKind kind, collective::DType dtype,
                             collective::Op op = collective::Op::kSum, int root = 0) const noexcept {
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

  RelayOptions options;
  std::vector<std::unique_ptr<RelayRail>> rails;
};

namespace {

/// Shares a whole job out over rails, and cuts each rail's slices into equal pieces, as few as windows have room for,
/// `pieces` of them side by side. All rails take as many rounds.
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

bool is_over(const RelayHolds& holds) noexcept {
  return std::ranges::any_of(holds.rails, [](const auto& rail) {
    return acquire(rail->board.release.failed) != 0 || acquire(rail->board.error) != 0;
  });
}

template <typename Launch>
Status start(const RelayHolds& holds, const RelayJobs& jobs, const Launch& launch) noexcept {
  if (is_over(holds)) return Status::kFailed;
  const Doorbell& bell = jobs.rail[0].doorbell;
  const Request request = Request::unpacked(bell.what);
  const Range range({static_cast<OperationKind>(request.operation), request.dtype, bell.bytes});
  const OnDevice current(holds.options.device);
  return launch(jobs, grid_for(jobs.rail[0])) == cudaSuccess ? Status::kOk : Status::kNotLaunched;
}

/// What only moves.
Status start(const RelayHolds& holds, const RelayJob& job, Stream stream) noexcept {
  const RelayJobs jobs = share_out(holds, job, std::max(job.in.parts, job.out.parts), holds.options.window_bytes);
  return start(holds, jobs, [&](const RelayJobs& all, Grid grid) { return launch_relay(all, grid, stream); });
}

/// What every rank sends to who sums it.
Status start_sum(const RelayHolds& holds, const RelayJob& job, collective::DType dtype, collective::Op op,
                 Stream stream) noexcept {
  const RelayJobs jobs = share_out(holds, job, job.ranks, holds.options.window_bytes);
  return start(holds, jobs,
               [&](const RelayJobs& all, Grid grid) { return launch_relay_sum(all, dtype, op, grid, stream); });
}

/// Chunks are rounded up to whole units, for which windows need room.
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

bool is_in_order(const RelayShard& shard) noexcept {
  return lies_well(shard.in, shard.out, shard.dtype) && collective::known(shard.op) && shard.count != 0;
}

/// One round for each rail. `launch`: by the jobs, the grid, and whether it is one-shot.
template <typename Launch>
Status start_step(const RelayHolds& holds, const RelayShard& shard, const Launch& launch) noexcept {
  if (!is_in_order(shard)) return Status::kInvalid;
  const bool one_shot = is_one_shot(holds, shard.count * collective::element_bytes(shard.dtype));
  const RelayJob job = all_reduce_job(holds, shard);
  const RelayJobs jobs =
      one_shot ? share_out(holds, job, job.ranks, holds.options.window_bytes) : share_out_two_shot(holds, job);
  if (jobs.rail[0].rounds != 1) return Status::kInvalid;
  return start(holds, jobs, [&](const RelayJobs& all, Grid grid) { return launch(all, grid, one_shot); });
}

Status start_two_shot(const RelayHolds& holds, const RelayJob& job, collective::DType dtype, collective::Op op,
                      Stream stream) noexcept {
  RelayJobs jobs = share_out_two_shot(holds, job);
  for (std::uint32_t rail = 0; rail < jobs.rails; ++rail) jobs.rail[rail].rounds *= 2;
  return start(holds, jobs,
               [&](const RelayJobs& all, Grid grid) { return launch_relay_two_shot(all, dtype, op, grid, stream); });
}

}  // namespace

Relay::Relay(const RelayOptions& options) {
  if (options.rails == 0 || options.rails > kMostRails) {
    throw Error{"set up rails between GPUs", "there are " + std::to_string(options.rails),
                "Use at least one and at most " + std::to_string(kMostRails)};
  }
  const OnDevice current(options.device);
  check(static_cast<cudaError_t>(load_relay_kernels()), "load kernels");
  check(static_cast<cudaError_t>(load_relay_split_kernels()), "load kernels");
  holds_ = std::make_unique<RelayHolds>(options);
}

Relay::~Relay() {
  const OnDevice current(holds_->options.device);
  cudaDeviceSynchronize();
  holds_.reset();
}

Status Relay::all_reduce(const void* in, void* out, std::size_t count, collective::DType dtype, collective::Op op,
                         Stream stream) noexcept {
  if (!lies_well(in, out, dtype) || !collective::known(op)) return Status::kInvalid;
  if (count == 0) return Status::kOk;
  const std::size_t bytes = count * collective::element_bytes(dtype);
  const bool one_shot = is_one_shot(*holds_, bytes);
  const RelayJob job = all_reduce_job(*holds_, {in, out, count, dtype, op, true, bytes});
  return one_shot ? start_sum(*holds_, job, dtype, op, stream) : start_two_shot(*holds_, job, dtype, op, stream);
}

Status Relay::all_gather(const void* in, void* out, std::size_t count, collective::DType dtype,
                         Stream stream) noexcept {
  if (!lies_well(in, out, dtype)) return Status::kInvalid;
  if (count == 0) return Status::kOk;
  RelayJob job = holds_->job(Collective::kAllGather, OperationKind::kAllGather, dtype);
  const std::size_t bytes = count * collective::element_bytes(dtype);
  job.in = tensor(in, 1, bytes);
  job.out = tensor(out, job.ranks, bytes);
  job.own_out = job.rank;
  job.doorbell.bytes = bytes * job.ranks;
  return start(*holds_, job, stream);
}

Status Relay::reduce_scatter(const void* in, void* out, std::size_t count, collective::DType dtype, collective::Op op,
                             Stream stream) noexcept {
  if (!lies_well(in, out, dtype) || !collective::known(op)) return Status::kInvalid;
  if (count == 0) return Status::kOk;
  RelayJob job = holds_->job(Collective::kAllToAll, OperationKind::kReduceScatter, dtype, op);
  const std::size_t bytes = count * collective::element_bytes(dtype);
  job.in = tensor(in, job.ranks, bytes);
  job.out = tensor(out, 1, bytes);
  job.own_in = job.rank;
  job.doorbell.bytes = bytes * job.ranks;
  return start_sum(*holds_, job, dtype, op, stream);
}

Status Relay::broadcast(const void* in, void* out, std::size_t count, collective::DType dtype, int root,
                        Stream stream) noexcept {
  const bool is_root = holds_->options.rank == root;
  if (root < 0 || root >= holds_->options.ranks || !lies_well(is_root ? in : nullptr, out, dtype)) {
    return Status::kInvalid;
  }
  if (count == 0) return Status::kOk;
  RelayJob job = holds_->job(Collective::kBroadcast, OperationKind::kBroadcast, dtype, collective::Op::kSum, root);
  const std::size_t bytes = count * collective::element_bytes(dtype);
  job.in = is_root ? tensor(in, 1, bytes) : RelayTensor{};
  job.out = tensor(out, 1, bytes);
  if (is_root) job.own_out = 0;
  job.doorbell.bytes = bytes;
  return start(*holds_, job, stream);
}

Status Relay::all_to_all(const void* in, void* out, std::size_t count, collective::DType dtype,
                         Stream stream) noexcept {
  if (!lies_well(in, out, dtype)) return Status::kInvalid;
  if (count == 0) return Status::kOk;
  RelayJob job = holds_->job(Collective::kAllToAll, OperationKind::kAllToAll, dtype);
  const std::size_t bytes = count * collective::element_bytes(dtype);
  job.in = tensor(in, job.ranks, bytes);
  job.out = tensor(out, job.ranks, bytes);
  job.own_in = job.own_out = job.rank;
  job.doorbell.bytes = bytes * job.ranks;
  return start(*holds_, job, stream);
}

Status Relay::barrier(Stream stream) noexcept {
  return start(*holds_, holds_->job(Collective::kBarrier, OperationKind::kBarrier, collective::DType::kInt32), stream);
}

Status Relay::post(const RelayShard& shard, Stream stream) noexcept {
  return start_step(*holds_, shard, [&](const RelayJobs& jobs, Grid grid, bool /*one_shot*/) {
    return launch_relay_post(jobs, grid, stream);
  });
}

Status Relay::turn(const RelayShard& shard, Stream stream) noexcept {
  return start_step(*holds_, shard, [&](const RelayJobs& jobs, Grid grid, bool one_shot) {
    return one_shot ? int{cudaSuccess} : launch_relay_turn(jobs, shard.dtype, shard.op, grid, stream);
  });
}

Status Relay::collect(const RelayShard& shard, Stream stream) noexcept {
  return start_step(*holds_, shard, [&](const RelayJobs& jobs, Grid grid, bool one_shot) {
    return one_shot ? launch_relay_collect_sum(jobs, shard.dtype, shard.op, grid, stream)
                    : launch_relay_collect(jobs, grid, stream);
  });
}

/// Slices of whole kSliceAlignment fit into a round of each rail.
std::size_t Relay::most_shard_bytes() const noexcept {
  const RelayOptions& options = holds_->options;
  const std::uint64_t room =
      options.ranks <= 2 ? options.window_bytes / static_cast<std::uint64_t>(options.ranks) : room_for_chunks(options);
  return holds_->rails.size() * (room / kSliceAlignment * kSliceAlignment);
}

std::uint32_t Relay::rails() const noexcept { return static_cast<std::uint32_t>(holds_->rails.size()); }
std::span<std::byte> Relay::windows_in(std::uint32_t rail) const noexcept {
  return holds_->rails[rail]->windows_in.bytes();
}
std::span<std::byte> Relay::windows_out(std::uint32_t rail) const noexcept {
  return holds_->rails[rail]->windows_out.bytes();
}

std::optional<Round> Relay::next(std::uint32_t rail) const noexcept {
  const RelayRail& on = *holds_->rails[rail];
  const std::uint64_t index = on.finished;
  const Doorbell& bell = on.board.doorbells[index % kDoorbells];
  if (acquire(bell.sequence) != index + 1) return std::nullopt;
  const std::size_t window = index % kRelayWindows * on.window_bytes;
  const Request request = Request::unpacked(bell.what);
  Round round;
  round.number = index + 1;
  round.collective = static_cast<Collective>(request.collective);
  round.dtype = static_cast<collective::DType>(request.dtype);
  round.root = static_cast<int>(request.root);
  round.count = bell.count;
  round.begins = request.operation != 0;
  round.bytes = bell.bytes;
  round.out = on.windows_out.data() + window;
  round.in = on.windows_in.data() + window;
  if (round.collective == Collective::kAllGather) {
    round.in = round.out + static_cast<std::size_t>(holds_->options.rank) * round.count * element_bytes(round.dtype);
  }
  return round;
}

void Relay::finish(std::uint32_t rail, const Round& round) noexcept {
  holds_->rails[rail]->finished = round.number;
  __atomic_store_n(&holds_->rails[rail]->board.release.done, round.number, __ATOMIC_RELEASE);
}

RelayTimes Relay::times(std::uint32_t rail, std::uint64_t number) const noexcept {
  return holds_->rails[rail]->board.times[(number - 1) % kDoorbells];
}

void Relay::fail(int peer) noexcept {
  const auto rank = static_cast<std::uint8_t>(holds_->options.rank);
  const std::uint64_t failure =
      Failure{FailureKind::kAborted, static_cast<std::uint8_t>(peer < 0 ? rank : peer), rank, 0, 0}.packed();
  for (const auto& rail : holds_->rails) {
    std::uint64_t none = 0;
    __atomic_compare_exchange_n(&rail->board.release.failed, &none, failure, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }
}

std::optional<Failure> Relay::failure() const noexcept {
  for (const auto& rail : holds_->rails) {
    std::uint64_t failure = acquire(rail->board.release.failed);
    if (failure == 0) failure = acquire(rail->board.error);
    if (failure != 0) return Failure::unpacked(failure);
  }
  return std::nullopt;
}

}  // namespace tensorwire::cuda
