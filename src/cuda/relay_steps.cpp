// All-reduces of a relay in steps, so that the stream does something else between them, or waits without a kernel.
#include <array>

#include "cuda/relay_plan.cuh"

namespace tensorwire::cuda {

namespace {

bool is_in_order(const RelayShard& shard) noexcept {
  return lies_well(shard.in, shard.out, shard.dtype) && collective::known(shard.op) && shard.count != 0;
}

/// The gates of a shard's steps, from 1; 0: none. Of a one-shot two may be in flight, of a two-shot the two rounds of
/// one: what is closed was waited at before.
struct ShardGates {
  std::uint32_t post = 0;
  std::uint32_t turn = 0;
};

ShardGates gates_of(const RelayHolds& holds, const RelayShard& shard, bool one_shot) noexcept {
  if (shard.operation_bytes < holds.gated_bytes) return {};
  return one_shot ? ShardGates{shard.place % kRelayWindows + 1, 0} : ShardGates{1, 2};
}

int wait_at(const RelayHolds& holds, const RelayJobs& jobs, std::uint32_t gate, Stream stream) noexcept {
  if (gate == 0) return CUDA_SUCCESS;
  std::array<std::uint64_t, kMostRails> words{};
  for (std::uint32_t rail = 0; rail < jobs.rails; ++rail) {
    words[rail] = reinterpret_cast<std::uint64_t>(&jobs.rail[rail].board->gates[gate - 1].open);
  }
  return holds.gates.wait(std::span(words).first(jobs.rails), stream);
}

void let_close(RelayJobs& jobs, std::uint32_t gate) noexcept {
  for (std::uint32_t rail = 0; rail < jobs.rails; ++rail) jobs.rail[rail].gate = gate;
}

/// One round for each rail. `launch`: by the jobs, the grid, the gates, and whether it is one-shot.
template <typename Launch>
Status start_step(const RelayHolds& holds, const RelayShard& shard, const Launch& launch) noexcept {
  if (!is_in_order(shard)) return Status::kInvalid;
  const bool one_shot = is_one_shot(holds, shard.count * collective::element_bytes(shard.dtype));
  const RelayJob job = all_reduce_job(holds, shard);
  RelayJobs jobs =
      one_shot ? share_out(holds, job, job.ranks, holds.options.window_bytes) : share_out_two_shot(holds, job);
  if (jobs.rail[0].rounds != 1) return Status::kInvalid;
  const ShardGates gates = gates_of(holds, shard, one_shot);
  return start(holds, jobs, [&](const RelayJobs& /*same*/, Grid grid) { return launch(jobs, grid, gates, one_shot); });
}

}  // namespace

Status Relay::post(const RelayShard& shard, Stream stream) noexcept {
  return start_step(*holds_, shard, [&](RelayJobs& jobs, Grid grid, ShardGates gates, bool /*one_shot*/) {
    let_close(jobs, gates.post);
    return launch_relay_post(jobs, grid, stream);
  });
}

Status Relay::turn(const RelayShard& shard, Stream stream) noexcept {
  return start_step(*holds_, shard, [&](RelayJobs& jobs, Grid grid, ShardGates gates, bool one_shot) {
    if (one_shot) return int{cudaSuccess};
    if (const int error = wait_at(*holds_, jobs, gates.post, stream); error != CUDA_SUCCESS) return error;
    let_close(jobs, gates.turn);
    return launch_relay_turn(jobs, shard.dtype, shard.op, grid, stream);
  });
}

Status Relay::collect(const RelayShard& shard, Stream stream) noexcept {
  return start_step(*holds_, shard, [&](RelayJobs& jobs, Grid grid, ShardGates gates, bool one_shot) {
    const int error = wait_at(*holds_, jobs, one_shot ? gates.post : gates.turn, stream);
    if (error != CUDA_SUCCESS) return error;
    return one_shot ? launch_relay_collect_sum(jobs, shard.dtype, shard.op, grid, stream)
                    : launch_relay_collect(jobs, grid, stream);
  });
}

/// Each shard is filled and rung for before the results of the one before are waited for.
Status Relay::all_reduce_in_steps(const RelayShard& whole, Stream stream) noexcept {
  const std::size_t element = collective::element_bytes(whole.dtype);
  const std::size_t most = most_shard_bytes() / element;
  const auto* in = static_cast<const std::byte*>(whole.in);
  auto* out = static_cast<std::byte*>(whole.out);
  RelayShard before;
  const auto end = [&](const RelayShard& shard) { return shard.count == 0 ? Status::kOk : collect(shard, stream); };
  for (std::size_t at = 0; at < whole.count; at += most) {
    RelayShard shard = whole;
    shard.in = in + at * element;
    shard.out = out + at * element;
    shard.count = std::min(most, whole.count - at);
    shard.place = static_cast<std::uint32_t>(at / most % kRelayWindows);
    shard.begins = at == 0;
    Status status = before.count == 0 ? Status::kOk : turn(before, stream);
    if (status == Status::kOk) status = post(shard, stream);
    if (status == Status::kOk) status = end(before);
    if (status != Status::kOk) return status;
    before = shard;
  }
  const Status turned = turn(before, stream);
  return turned == Status::kOk ? end(before) : turned;
}

std::string Relay::try_stream_waits() {
  const OnDevice current(holds_->options.device);
  RelayJob job;
  holds_->rails.front()->put_into(job);
  return holds_->gates.open(reinterpret_cast<std::uint64_t>(&job.board->gates[0].open));
}

void Relay::wait_in_stream_from(std::size_t bytes) noexcept { holds_->gated_bytes = bytes; }

/// Slices of whole kSliceAlignment fit into a round of each rail.
std::size_t Relay::most_shard_bytes() const noexcept {
  const RelayOptions& options = holds_->options;
  const std::uint64_t room =
      options.ranks <= 2 ? options.window_bytes / static_cast<std::uint64_t>(options.ranks) : room_for_chunks(options);
  return holds_->rails.size() * (room / kSliceAlignment * kSliceAlignment);
}

}  // namespace tensorwire::cuda
