#include "cuda/communicator.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "cuda/communicator_state.hpp"
#include "cuda/driver.cuh"
#include "cuda/meeting.hpp"
#include "cuda/range.hpp"

namespace tensorwire::cuda {

namespace {

int launch(Protocol protocol, const AllReduceJob& job, collective::DType dtype, Grid grid, Stream stream) noexcept {
  switch (protocol) {
    case Protocol::kLines:
      return launch_lines(job, dtype, grid, stream);
    case Protocol::kWords:
      return launch_words(job, dtype, grid, stream);
    case Protocol::kSlots:
      return launch_slots(job, dtype, grid, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

#ifdef TENSORWIRE_LITMUS
Litmus& litmus_of_process() noexcept {
  static Litmus litmus;
  return litmus;
}
#endif

/// Whatever may wait for an idle GPU (allocations, loading kernels) is done before the ranks meet: from then on others
/// may wait for this one on the same GPU.
CommunicatorState::CommunicatorState(const CommunicatorOptions& options)
    : device(options.device), early(options.early_launch) {
  const OnDevice current(device);
  Met met = meet(options, [this] { prepare(); });
  scratch = std::move(met.scratch);
  who = std::move(met.who);
  peers.layout = met.layout;
  peers.rank = static_cast<std::uint32_t>(options.rank);
  for (std::size_t rank = 0; rank < scratch.size(); ++rank) peers.scratch[rank] = scratch[rank]->data();
  own = std::move(met.own);
  peers.own = own.data() != nullptr ? own.data() : peers.scratch[peers.rank];
  peers.bound_ns = static_cast<std::uint64_t>(options.operation_bound / kNanosecond);
  peers.journal = options.journal;
#ifdef TENSORWIRE_LITMUS
  peers.litmus = litmus_of_process();
#endif
  enlist();
}

void CommunicatorState::prepare() {
  for (const auto load :
       {load_lines_kernels, load_words_kernels, load_slots_kernels, load_add_norm_kernels, load_exchange_kernels}) {
    check(static_cast<cudaError_t>(load()), "load kernels");
  }
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, sizeof(Board), cudaHostAllocMapped | cudaHostAllocPortable), "allocate pinned memory");
  board = new (memory) Board{};
  void* mapped = nullptr;
  check(cudaHostGetDevicePointer(&mapped, memory, 0), "map pinned memory");
  peers.board = static_cast<Board*>(mapped);
  check(cudaMalloc(&token, kUnitBytes), "allocate memory of the GPU");
  check(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), "create a stream");
  clock = std::make_unique<GpuClock>();
}

CommunicatorState::~CommunicatorState() {
  strike();
  const OnDevice current(device);
  if (!scratch.empty()) cudaDeviceSynchronize();
  if (side != nullptr) cudaStreamDestroy(side);
  clock.reset();
  if (board != nullptr) cudaFreeHost(board);
  cudaFree(token);
}

Communicator::Communicator(const CommunicatorOptions& options) : state_(std::make_unique<CommunicatorState>(options)) {}
Communicator::~Communicator() = default;

int Communicator::rank() const noexcept { return static_cast<int>(state_->peers.rank); }
int Communicator::ranks() const noexcept { return static_cast<int>(state_->peers.layout.ranks); }
const Layout& Communicator::layout() const noexcept { return state_->peers.layout; }

Status Communicator::all_reduce(const void* in, void* out, std::size_t count, collective::DType dtype,
                                collective::Op op, Stream stream) noexcept {
  if (!collective::known(dtype)) return Status::kInvalid;
  const Shape shape = choose_shape(count * collective::element_bytes(dtype), dtype, state_->peers.layout);
  return all_reduce_as(shape, in, out, count, dtype, op, stream);
}

Status Communicator::all_reduce_as(const Shape& shape, const void* in, void* out, std::size_t count,
                                   collective::DType dtype, collective::Op op, Stream stream) noexcept {
  if (!collective::known(dtype) || !collective::known(op)) return Status::kInvalid;
  const std::size_t element = collective::element_bytes(dtype);
  if (!on_boundary(in, element) || !on_boundary(out, element)) return Status::kInvalid;
  if (!fits(shape, count * element, dtype, state_->peers.layout)) return Status::kInvalid;
  if (failure()) return Status::kFailed;
  if (count == 0) return Status::kOk;

  AllReduceJob job;
  job.peers = state_->peers;
  Operation& operation = job.peers.operation;
  operation = {state_->token == in ? OperationKind::kBarrier : OperationKind::kAllReduce,
               static_cast<std::uint8_t>(dtype), count * element, static_cast<std::uint8_t>(op)};
  operation.signature = signature_of(operation);
  const Range range(job.peers.operation);
  job.in = static_cast<const std::byte*>(in);
  job.out = static_cast<std::byte*>(out);
  job.count = count;
  job.op = op;
  job.aligned = on_boundary(in, kUnitBytes) && on_boundary(out, kUnitBytes);
  job.piece_units = shape.piece_bytes / kUnitBytes;
  const std::size_t units = (count * element + kUnitBytes - 1) / kUnitBytes;
  const bool two_shot = shape.protocol == Protocol::kSlots && ranks() > 2;  // then lanes share out a rank's part
  const std::size_t parts = two_shot ? static_cast<std::size_t>(ranks()) : 1;
  job.lane_units = ((units + parts - 1) / parts + shape.lanes - 1) / shape.lanes;
  const OnDevice current(state_->device);
  const int error = launch(shape.protocol, job, dtype, {shape.lanes, shape.threads, state_->early}, stream);
  return error == cudaSuccess ? Status::kOk : Status::kNotLaunched;
}

Status Communicator::all_reduce_add_norm(const AddNorm& what, collective::DType dtype, Stream stream) noexcept {
  if (!collective::known(dtype) || dtype == collective::DType::kInt32) return Status::kInvalid;
  for (const void* tensor : {what.in, what.residual_in, what.weight, static_cast<const void*>(what.residual_out)}) {
    if (tensor == nullptr || !on_boundary(tensor, kUnitBytes)) return Status::kInvalid;
  }
  if ((what.norm_out == nullptr && what.quant_out == nullptr) || !on_boundary(what.norm_out, kUnitBytes)) {
    return Status::kInvalid;
  }
  if (what.quant_out != nullptr && (!on_boundary(what.quant_out, sizeof(std::uint64_t)) ||
                                    (what.quant_scale == nullptr) == (what.row_scales == nullptr))) {
    return Status::kInvalid;
  }
  const std::size_t row_bytes = what.hidden * collective::element_bytes(dtype);
  if (what.hidden == 0 || row_bytes % kUnitBytes != 0) return Status::kInvalid;
  if (failure()) return Status::kFailed;
  if (what.rows == 0) return Status::kOk;
  const RowShape shape = choose_row_shape(what.rows, row_bytes / kUnitBytes, state_->peers.layout);
  if (shape.lanes == 0 || what.rows > UINT32_MAX / kMostSplit) return Status::kInvalid;

  AddNormJob job;
  job.peers = state_->peers;
  job.peers.operation = {OperationKind::kAddNorm, static_cast<std::uint8_t>(dtype), what.rows * row_bytes,
                         static_cast<std::uint8_t>(collective::Op::kSum)};
  job.peers.operation.signature = signature_of(job.peers.operation, what.hidden);
  const Range range(job.peers.operation);
  job.in = static_cast<const std::byte*>(what.in);
  job.residual_in = static_cast<const std::byte*>(what.residual_in);
  job.weight = static_cast<const std::byte*>(what.weight);
  job.residual_out = static_cast<std::byte*>(what.residual_out);
  job.norm_out = static_cast<std::byte*>(what.norm_out);
  job.rows = static_cast<std::uint32_t>(what.rows);
  job.row_units = static_cast<std::uint32_t>(row_bytes / kUnitBytes);
  job.split = shape.split;
  job.epsilon = what.epsilon;
  job.one_plus = what.one_plus;
  job.quant_out = static_cast<std::byte*>(what.quant_out);
  job.quant_scale = what.quant_scale;
  job.row_scales = what.row_scales;
  job.quant_type = what.quant_type;
  const OnDevice current(state_->device);
  const int error = launch_add_norm(job, dtype, {shape.lanes, shape.threads, state_->early}, stream);
  return error == cudaSuccess ? Status::kOk : Status::kNotLaunched;
}

Status Communicator::barrier(Stream stream) noexcept {
  return all_reduce(state_->token, state_->token, 1, collective::DType::kInt32, collective::Op::kMax, stream);
}

void Communicator::abort(int peer) noexcept {
  Failure failure;
  failure.kind = FailureKind::kAborted;
  failure.peer = static_cast<std::uint8_t>(peer);
  failure.reporter = static_cast<std::uint8_t>(rank());
  std::uint64_t none = 0;
  __atomic_compare_exchange_n(&state_->board->abort, &none, failure.packed(), false, __ATOMIC_RELEASE,
                              __ATOMIC_RELAXED);
}

std::optional<Failure> Communicator::failure() const noexcept {
  const std::uint64_t word = state_->failure_word();
  if (word == 0) return std::nullopt;
  return Failure::unpacked(word);
}

}  // namespace tensorwire::cuda
