#include "cuda/relay.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/round_up.hpp"
#include "cuda/communicator_state.hpp"
#include "cuda/driver.cuh"
#include "cuda/pinned_memory.hpp"
#include "cuda/range.hpp"
#include "cuda/relay_job.hpp"
#include "cuda/windows.hpp"

namespace tensorwire::cuda {

namespace {

constexpr std::uint32_t kThreads = 512;
/// A grid of this many blocks fills and empties windows as fast as PCIe goes.
constexpr std::uint64_t kMostBlocks = 64;

void load_kernels() { check(static_cast<cudaError_t>(load_relay_kernels()), "load kernels"); }

template <typename Word>
Word acquire(const Word& from) noexcept {
  return __atomic_load_n(&from, __ATOMIC_ACQUIRE);
}

}  // namespace

struct RelayHolds {
  explicit RelayHolds(const RelayOptions& asked)
      : options(asked),
        windows_in(asked.windows_on_gpu, kRelayWindows * asked.window_bytes),
        windows_out(asked.windows_on_gpu, kRelayWindows * asked.window_bytes),
        board_memory(sizeof(RelayBoard)),
        board(*new (board_memory.host()) RelayBoard{}) {
    load_kernels();
    void* memory = nullptr;
    check(cudaMalloc(&memory, sizeof(RelayState)), "allocate memory of the GPU");
    state = static_cast<RelayState*>(memory);
    check(cudaMemset(state, 0, sizeof(RelayState)), "clear memory of the GPU");
    check(cudaDeviceSynchronize(), "clear memory of the GPU");
  }
  ~RelayHolds() {
    const OnDevice device(options.device);
    cudaDeviceSynchronize();
    cudaFree(state);
  }
  RelayHolds(const RelayHolds&) = delete;
  RelayHolds& operator=(const RelayHolds&) = delete;

  [[nodiscard]] RelayJob job(collective::Collective collective, OperationKind kind, collective::DType dtype,
                             collective::Op op = collective::Op::kSum, int root = 0) const {
    RelayJob made;
    made.board = reinterpret_cast<RelayBoard*>(board_memory.on_gpu());
    made.state = state;
    made.windows_in = windows_in.on_gpu();
    made.windows_out = windows_out.on_gpu();
    made.window_bytes = options.window_bytes;
    made.element_bytes = static_cast<std::uint32_t>(collective::element_bytes(dtype));
    made.bound_ns = static_cast<std::uint64_t>(options.operation_bound / kNanosecond);
    made.rank = static_cast<std::uint32_t>(options.rank);
    made.ranks = static_cast<std::uint32_t>(options.ranks);
    made.gathers = collective == collective::Collective::kAllGather;
    made.doorbell.what =
        Request{static_cast<std::uint8_t>(collective), static_cast<std::uint8_t>(dtype), static_cast<std::uint8_t>(op),
                static_cast<std::uint8_t>(kind), static_cast<std::uint32_t>(root)}
            .packed();
    return made;
  }

  RelayOptions options;
  Windows windows_in, windows_out;
  PinnedMemory board_memory;
  RelayBoard& board;
  RelayState* state = nullptr;
  std::uint64_t finished = 0;  ///< rounds; of the serving thread
};

namespace {

bool lies_well(const void* in, const void* out, collective::DType dtype) noexcept {
  return collective::known(dtype) && on_boundary(in, collective::element_bytes(dtype)) &&
         on_boundary(out, collective::element_bytes(dtype));
}

RelayTensor tensor(const void* data, std::size_t parts, std::size_t part_bytes) noexcept {
  return {const_cast<std::byte*>(static_cast<const std::byte*>(data)), static_cast<std::uint32_t>(parts), part_bytes};
}

constexpr std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) noexcept { return (a + b - 1) / b; }

/// Cuts each part into equal pieces, as few as windows have room for, `pieces` of them side by side.
void choose_rounds(RelayJob& job, std::uint64_t pieces) noexcept {
  const std::uint64_t part = std::max(job.in.part_bytes, job.out.part_bytes);
  const std::uint64_t most = job.window_bytes / std::max<std::uint64_t>(pieces, 1) / kUnitBytes * kUnitBytes;
  job.rounds = std::max<std::uint64_t>(divide_up(part, most), 1);
  job.piece_bytes = round_up(divide_up(part, job.rounds), kUnitBytes);
  job.doorbell.count = job.piece_bytes / job.element_bytes;
}

Grid grid_for(const RelayJob& job) noexcept {
  const std::uint64_t bytes = std::max(job.in.parts, job.out.parts) * job.piece_bytes;
  const std::uint64_t blocks = divide_up(bytes, std::uint64_t{kThreads} * kUnitBytes);
  return {static_cast<std::uint32_t>(std::clamp<std::uint64_t>(blocks, 1, kMostBlocks)), kThreads, false};
}

template <typename Launch>
Status start(const RelayHolds& holds, RelayJob& job, std::uint64_t pieces, const Launch& launch) noexcept {
  if (acquire(holds.board.release.failed) != 0 || acquire(holds.board.error) != 0) return Status::kFailed;
  choose_rounds(job, pieces);
  const Request request = Request::unpacked(job.doorbell.what);
  const Range range({static_cast<OperationKind>(request.operation), request.dtype, job.doorbell.bytes});
  const OnDevice current(holds.options.device);
  return launch(grid_for(job)) == cudaSuccess ? Status::kOk : Status::kNotLaunched;
}

Status start(const RelayHolds& holds, RelayJob& job, Stream stream) noexcept {
  return start(holds, job, std::max(job.in.parts, job.out.parts),
               [&](Grid grid) { return launch_relay(job, grid, stream); });
}

}  // namespace

Relay::Relay(const RelayOptions& options) {
  const OnDevice current(options.device);
  holds_ = std::make_unique<RelayHolds>(options);
}
Relay::~Relay() = default;

Status Relay::all_reduce(const void* in, void* out, std::size_t count, collective::DType dtype, collective::Op op,
                         Stream stream) noexcept {
  using collective::Collective;
  if (!lies_well(in, out, dtype) || !collective::known(op)) return Status::kInvalid;
  if (count == 0) return Status::kOk;
  const std::size_t bytes = count * collective::element_bytes(dtype);
  const auto ranks = static_cast<std::size_t>(holds_->options.ranks);
  const bool one_shot = ranks <= 2 || bytes <= holds_->options.one_shot_bytes;
  RelayJob job =
      holds_->job(one_shot ? Collective::kAllGather : Collective::kAllToAll, OperationKind::kAllReduce, dtype, op);
  job.in = tensor(in, 1, bytes);
  job.out = tensor(out, 1, bytes);
  job.doorbell.bytes = bytes;
  if (one_shot) {
    return start(*holds_, job, ranks, [&](Grid grid) { return launch_relay_sum(job, dtype, op, grid, stream); });
  }
  // Chunks are rounded up to whole units, for which windows need room.
  job.window_bytes -= ranks * kUnitBytes;
  return start(*holds_, job, 1, [&](Grid grid) {
    job.window_bytes = holds_->options.window_bytes;
    job.rounds *= 2;
    job.doorbell.count = divide_up(job.piece_bytes / kUnitBytes, ranks) * kUnitBytes / collective::element_bytes(dtype);
    return launch_relay_two_shot(job, dtype, op, grid, stream);
  });
}

Status Relay::all_gather(const void* in, void* out, std::size_t count, collective::DType dtype,
                         Stream stream) noexcept {
  if (!lies_well(in, out, dtype)) return Status::kInvalid;
  if (count == 0) return Status::kOk;
  RelayJob job = holds_->job(collective::Collective::kAllGather, OperationKind::kAllGather, dtype);
  const std::size_t bytes = count * collective::element_bytes(dtype);
  job.in = tensor(in, 1, bytes);
  job.out = tensor(out, static_cast<std::size_t>(holds_->options.ranks), bytes);
  job.own_out = job.rank;
  job.doorbell.bytes = bytes * job.ranks;
  return start(*holds_, job, stream);
}

Status Relay::reduce_scatter(const void* in, void* out, std::size_t count, collective::DType dtype, collective::Op op,
                             Stream stream) noexcept {
  if (!lies_well(in, out, dtype) || !collective::known(op)) return Status::kInvalid;
  if (count == 0) return Status::kOk;
  RelayJob job = holds_->job(collective::Collective::kAllToAll, OperationKind::kReduceScatter, dtype, op);
  const auto ranks = static_cast<std::size_t>(holds_->options.ranks);
  const std::size_t bytes = count * collective::element_bytes(dtype);
  job.in = tensor(in, ranks, bytes);
  job.out = tensor(out, 1, bytes);
  job.own_in = job.rank;
  job.doorbell.bytes = bytes * ranks;
  return start(*holds_, job, ranks, [&](Grid grid) { return launch_relay_sum(job, dtype, op, grid, stream); });
}

Status Relay::broadcast(const void* in, void* out, std::size_t count, collective::DType dtype, int root,
                        Stream stream) noexcept {
  const bool is_root = holds_->options.rank == root;
  if (root < 0 || root >= holds_->options.ranks || !lies_well(is_root ? in : nullptr, out, dtype)) {
    return Status::kInvalid;
  }
  if (count == 0) return Status::kOk;
  RelayJob job =
      holds_->job(collective::Collective::kBroadcast, OperationKind::kBroadcast, dtype, collective::Op::kSum, root);
  const std::size_t bytes = count * collective::element_bytes(dtype);
  job.in = is_root ? tensor(in, 1, bytes) : RelayTensor{};
  if (is_root) job.own_out = 0;
  job.out = tensor(out, 1, bytes);
  job.doorbell.bytes = bytes;
  return start(*holds_, job, stream);
}

Status Relay::all_to_all(const void* in, void* out, std::size_t count, collective::DType dtype,
                         Stream stream) noexcept {
  if (!lies_well(in, out, dtype)) return Status::kInvalid;
  if (count == 0) return Status::kOk;
  RelayJob job = holds_->job(collective::Collective::kAllToAll, OperationKind::kAllToAll, dtype);
  const auto ranks = static_cast<std::size_t>(holds_->options.ranks);
  const std::size_t bytes = count * collective::element_bytes(dtype);
  job.in = tensor(in, ranks, bytes);
  job.out = tensor(out, ranks, bytes);
  job.own_in = job.own_out = job.rank;
  job.doorbell.bytes = bytes * ranks;
  return start(*holds_, job, stream);
}

Status Relay::barrier(Stream stream) noexcept {
  RelayJob job = holds_->job(collective::Collective::kBarrier, OperationKind::kBarrier, collective::DType::kInt32);
  return start(*holds_, job, stream);
}

std::span<std::byte> Relay::windows_in() const noexcept { return holds_->windows_in.bytes(); }
std::span<std::byte> Relay::windows_out() const noexcept { return holds_->windows_out.bytes(); }

std::optional<Round> Relay::next() const noexcept {
  const std::uint64_t index = holds_->finished;
  const Doorbell& bell = holds_->board.doorbells[index % kDoorbells];
  if (acquire(bell.sequence) != index + 1) return std::nullopt;
  const std::size_t window = index % kRelayWindows * holds_->options.window_bytes;
  Round round;
  round.number = index + 1;
  const Request request = Request::unpacked(bell.what);
  round.collective = static_cast<collective::Collective>(request.collective);
  round.dtype = static_cast<collective::DType>(request.dtype);
  round.root = static_cast<int>(request.root);
  round.count = bell.count;
  round.begins = request.operation != 0;
  round.bytes = bell.bytes;
  round.out = holds_->windows_out.data() + window;
  round.in = holds_->windows_in.data() + window;
  if (round.collective == collective::Collective::kAllGather) {
    round.in = round.out + static_cast<std::size_t>(holds_->options.rank) * round.count * element_bytes(round.dtype);
  }
  return round;
}

void Relay::finish(const Round& round) noexcept {
  holds_->finished = round.number;
  __atomic_store_n(&holds_->board.release.done, round.number, __ATOMIC_RELEASE);
}

RelayTimes Relay::times(std::uint64_t number) const noexcept { return holds_->board.times[(number - 1) % kDoorbells]; }

void Relay::fail(int peer) noexcept {
  const auto rank = static_cast<std::uint8_t>(holds_->options.rank);
  std::uint64_t none = 0;
  const std::uint64_t failure =
      Failure{FailureKind::kAborted, static_cast<std::uint8_t>(peer < 0 ? rank : peer), rank, 0, 0}.packed();
  __atomic_compare_exchange_n(&holds_->board.release.failed, &none, failure, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

std::optional<Failure> Relay::failure() const noexcept {
  std::uint64_t failure = acquire(holds_->board.release.failed);
  if (failure == 0) failure = acquire(holds_->board.error);
  return failure != 0 ? std::optional{Failure::unpacked(failure)} : std::nullopt;
}

}  // namespace tensorwire::cuda
