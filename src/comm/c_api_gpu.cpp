#include "comm/c_api_gpu.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/cuda_driver.hpp"
#include "base/error.hpp"
#include "collective/builders.hpp"
#include "comm/c_api_calls.hpp"
#include "comm/c_api_group.hpp"

using namespace tensorwire;

namespace {

twResult_t refuse_usage(const GpuCall& call, const std::string& why) noexcept {
  return call.handle.refuse(twInvalidUsage, std::string{call.name} + ": " + why);
}

/// What throws is about this machine, and leaves the ranks apart.
template <typename Body>
twResult_t through_host(const GpuCall& call, Body&& body) noexcept {
  if (comm::GpuSide::is_capturing(call.stream)) {
    return refuse_usage(call, "it goes through host memory here, which cannot be captured into a graph");
  }
  try {
    return body(*call.handle.gpu(), *call.handle.communicator());
  } catch (const std::exception& error) {
    return call.handle.end_with(twSystemError, std::string{call.name} + ": " + error.what());
  }
}

twResult_t run_through_host(const GpuCall& call, const comm::Call& what) noexcept {
  return through_host(call, [&](comm::GpuSide& gpu, comm::Communicator& communicator) {
    const collective::Extent elements = communicator.extent_of(what);
    const std::size_t in_bytes = elements.input * element_bytes(what.dtype);
    const std::size_t out_bytes = elements.output * element_bytes(what.dtype);
    const auto memory = gpu.host_memory(in_bytes, out_bytes);
    gpu.copy(memory.in, what.in, in_bytes, call.stream);
    comm::Call on_host = what;
    on_host.in = memory.in;
    on_host.out = memory.out;
    if (!communicator.run(on_host)) return call.handle.result_of(false);
    gpu.copy(what.out, memory.out, out_bytes, call.stream);
    return twSuccess;
  });
}

twResult_t run_through_host(const GpuCall& call, std::span<const comm::Transfer> transfers) noexcept {
  return through_host(call, [&](comm::GpuSide& gpu, comm::Communicator& communicator) {
    const auto bytes_of = [](const comm::Transfer& transfer) { return transfer.count * element_bytes(transfer.dtype); };
    std::size_t sent = 0, received = 0;
    for (const comm::Transfer& transfer : transfers) (transfer.sends ? sent : received) += bytes_of(transfer);
    const auto memory = gpu.host_memory(sent, received);
    std::byte* in = memory.in;
    std::byte* out = memory.out;
    std::vector<comm::Transfer> on_host(transfers.begin(), transfers.end());
    for (comm::Transfer& transfer : on_host) {
      std::byte*& at = transfer.sends ? in : out;
      if (transfer.sends) gpu.copy(at, transfer.buffer, bytes_of(transfer), call.stream);
      transfer.buffer = at;
      at += bytes_of(transfer);
    }
    if (!communicator.run(std::span<const comm::Transfer>{on_host})) return call.handle.result_of(false);
    for (std::size_t i = 0; i < on_host.size(); ++i) {
      if (transfers[i].sends) continue;
      gpu.copy(transfers[i].buffer, on_host[i].buffer, bytes_of(transfers[i]), call.stream);
    }
    return twSuccess;
  });
}

/// Whether the handle's GPU is there for this call. `is_collective`: all ranks make it, so the GPUs may be joined by
/// it.
twResult_t ready_for(const GpuCall& call, bool is_collective) noexcept {
  twComm& handle = call.handle;
  if (handle.gpu() == nullptr) {
    if (!is_collective || comm::GpuSide::is_capturing(call.stream)) {
      return refuse_usage(call, "the GPUs have not been joined. Call twCommInitGpu on all ranks before");
    }
    if (const twResult_t result = handle.set_up_gpu(call.gpu); result != twSuccess) return result;
  }
  if (handle.gpu()->device() == call.gpu) return twSuccess;
  return refuse_usage(call, fmt::format("the buffers are on GPU {}, the communicator was made ready for GPU {}",
                                        call.gpu, handle.gpu()->device()));
}

}  // namespace

BufferPlace place_of(const comm::Call& call) noexcept {
  if (call.collective == collective::Collective::kBroadcast) return {cuda_device_of(call.out)};
  const auto in = cuda_device_of(call.in);
  const auto out = call.out == call.in ? in : cuda_device_of(call.out);
  return {in ? in : out, call.in != nullptr && call.out != nullptr && in != out};
}

BufferPlace place_of(const comm::Transfer& transfer) noexcept { return {cuda_device_of(transfer.buffer), false}; }

twResult_t submit_to_gpu(const GpuCall& call, const comm::Call& what) noexcept {
  if (const twResult_t ready = ready_for(call, true); ready != twSuccess) return ready;
  comm::GpuSide& gpu = *call.handle.gpu();
  if (!gpu.launches(what)) return run_through_host(call, what);
  return call.handle.result_of(call.name, gpu.launch(what, call.stream));
}

twResult_t submit_to_gpu(const GpuCall& call, const comm::Transfer& what) noexcept {
  if (const twResult_t ready = ready_for(call, false); ready != twSuccess) return ready;
  if (!thread_group().is_open()) return run_on_gpu(call, {&what, 1});
  try {
    thread_group().add(call, what);
    return twSuccess;
  } catch (const std::exception& error) {
    return call.handle.refuse(twInternalError, error.what());
  }
}

twResult_t run_on_gpu(const GpuCall& call, std::span<const comm::Transfer> transfers) noexcept {
  comm::GpuSide& gpu = *call.handle.gpu();
  if (!gpu.launches_messages()) return run_through_host(call, transfers);
  return call.handle.result_of(call.name, gpu.launch(transfers, call.stream));
}

twResult_t twCommInitGpu(twComm_t comm, int device) {
  return operate("twCommInitGpu", comm, [&](comm::Communicator& /*communicator*/) {
    if (device < -1) return comm->refuse(twInvalidArgument, fmt::format("twCommInitGpu: there is no GPU {}", device));
    try {
      return comm->set_up_gpu(device == -1 ? comm::GpuSide::current_device() : device);
    } catch (const std::exception& error) {
      return comm->refuse(twSystemError, error.what());
    }
  });
}

twResult_t twCommGpuPath(twComm_t comm, const char** path) {
  return operate("twCommGpuPath", comm, [&](comm::Communicator& /*communicator*/) {
    if (path == nullptr) return comm->refuse(twInvalidArgument, "twCommGpuPath: the pointer is null");
    *path = comm->gpu() == nullptr ? "" : comm->gpu()->path();
    return twSuccess;
  });
}

twResult_t twFusedAllReduceRmsNorm(const twFusedRmsNorm_t* what, twDataType_t dtype, twComm_t comm, void* stream) {
  constexpr const char* kName = "twFusedAllReduceRmsNorm";
  return operate(kName, comm, [&](comm::Communicator& /*communicator*/) {
    const auto problem = [&](const char* why) {
      return comm->refuse(twInvalidArgument, fmt::format("{}: {}", kName, why));
    };
    if (what == nullptr) return problem("the pointer is null");
    if (what->size != sizeof *what) return problem("its size is not that of this library. Begin with the initializer");
    const auto type = dtype_from(static_cast<int>(dtype));
    if (!type || *type == collective::DType::kInt32) return problem("the element type is not fp16, bf16 or fp32");
    if (what->quantOut != nullptr && what->quantType != twFloat8e4m3 && what->quantType != twInt8) {
      return problem("quantType is neither twFloat8e4m3 nor twInt8");
    }
    const auto gpu = cuda_device_of(what->in);
    if (!gpu) return problem("`in` is not memory of a GPU");
    const GpuCall call{kName, *comm, *gpu, stream};
    if (const twResult_t ready = ready_for(call, true); ready != twSuccess) return ready;
    cuda::AddNorm fused;
    fused.in = what->in;
    fused.residual_in = what->residualIn;
    fused.weight = what->weight;
    fused.residual_out = what->residualOut;
    fused.norm_out = what->normOut;
    fused.rows = what->rows;
    fused.hidden = what->hidden;
    fused.epsilon = what->epsilon;
    fused.one_plus = what->onePlus != 0;
    fused.quant_out = what->quantOut;
    fused.quant_scale = what->quantScale;
    fused.row_scales = what->rowScales;
    fused.quant_type = what->quantType == twInt8 ? cuda::QuantType::kInt8 : cuda::QuantType::kFloat8;
    if (!comm->gpu()->launches(fused)) {
      return refuse_usage(call, std::string{"the path "} + comm->gpu()->path() +
                                    " has no fused operation, or none without normOut. Use twAllReduce");
    }
    return comm->result_of(kName, comm->gpu()->launch(fused, *type, stream));
  });
}
