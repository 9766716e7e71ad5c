#include "cuda/relay.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "cuda/relay_plan.cuh"

namespace tensorwire::cuda {

using collective::Collective;

namespace {

template <typename Word>
Word acquire(const Word& from) noexcept {
  return __atomic_load_n(&from, __ATOMIC_ACQUIRE);
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
  if (bytes >= holds_->gated_bytes) return all_reduce_in_steps({in, out, count, 0, dtype, op, true, bytes}, stream);
  const bool one_shot = is_one_shot(*holds_, bytes);
  const RelayJob job = all_reduce_job(*holds_, {in, out, count, 0, dtype, op, true, bytes});
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
  round.gate = static_cast<std::uint32_t>(bell.gate);
  round.out = on.windows_out.data() + window;
  round.in = on.windows_in.data() + window;
  if (round.collective == Collective::kAllGather) {
    round.in = round.out + static_cast<std::size_t>(holds_->options.rank) * round.count * element_bytes(round.dtype);
  }
  return round;
}

void Relay::finish(std::uint32_t rail, const Round& round) noexcept {
  holds_->rails[rail]->finished = round.number;
  RelayBoard& board = holds_->rails[rail]->board;
  __atomic_store_n(&board.release.done, round.number, __ATOMIC_RELEASE);
  if (round.gate != 0) __atomic_store_n(&board.gates[round.gate - 1].open, 1U, __ATOMIC_RELEASE);
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
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (Gate& gate : rail->board.gates) __atomic_store_n(&gate.open, 1U, __ATOMIC_RELEASE);
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
