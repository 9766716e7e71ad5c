#include "cuda/stream_gates.cuh"

#include <array>

#include "base/error.hpp"
#include "cuda/driver.cuh"
#include "cuda/relay_board.hpp"

namespace tensorwire::cuda {

namespace {

/// That of CUDA 12.0, since which they are there without a switch of the driver's module.
constexpr unsigned kVersionOfWaits = 12000;

/// Of a trial. Owns them.
struct Trial {
  Trial() { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream"); }
  ~Trial() {
    if (exec != nullptr) cudaGraphExecDestroy(exec);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
};

void try_in_graph(const StreamGates& gates, std::span<const std::uint64_t> words) {
  Trial trial;
  check(static_cast<CUresult>(gates.wait(words, trial.stream)), "wait in a stream");
  check(cudaStreamSynchronize(trial.stream), "wait in a stream");
  check(cudaStreamBeginCapture(trial.stream, cudaStreamCaptureModeThreadLocal), "capture a wait");
  const int error = gates.wait(words, trial.stream);
  const cudaError_t captured = cudaStreamEndCapture(trial.stream, &trial.graph);
  check(static_cast<CUresult>(error), "capture a wait");
  check(captured, "capture a wait");
  check(cudaGraphInstantiate(&trial.exec, trial.graph, 0), "instantiate a graph with a wait");
  check(cudaGraphLaunch(trial.exec, trial.stream), "replay a wait");
  check(cudaStreamSynchronize(trial.stream), "replay a wait");
}

}  // namespace

std::string StreamGates::open(std::uint64_t word) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuStreamBatchMemOp", &found, kVersionOfWaits, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess || found == nullptr) {
    static_cast<void>(cudaGetLastError());
    return "the driver has no cuStreamBatchMemOp of CUDA 12";
  }
  batch_ = reinterpret_cast<decltype(batch_)>(found);
  try {
    try_in_graph(*this, {&word, 1});
  } catch (const Error& failed) {
    static_cast<void>(cudaGetLastError());
    return failed.what();
  }
  return {};
}

int StreamGates::wait(std::span<const std::uint64_t> words, Stream stream) const noexcept {
  std::array<CUstreamBatchMemOpParams, kMostRails> waits{};
  if (batch_ == nullptr || words.size() > waits.size()) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < words.size(); ++i) {
    auto& wait = waits[i].waitValue;
    wait.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    wait.address = words[i];
    wait.value = 1;
    wait.flags = CU_STREAM_WAIT_VALUE_GEQ;
  }
  return batch_(stream, static_cast<unsigned>(words.size()), waits.data(), 0);
}

}  // namespace tensorwire::cuda
