// Ranks as threads with communicators of the C API, a stream and a graph each.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/ranks.hpp"
#include "tensorwire/tensorwire.h"

namespace tensorwire::test {

struct ApiRank {
  int rank;
  int ranks;
  int device;
  cudaStream_t stream;
  twComm_t comm;
  Crossing& crossing;

  [[nodiscard]] std::string line() const { return twGetLastError(comm); }
  void synchronize() const { expect_ok(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }
  void write(const DeviceBytes& to, const std::vector<std::byte>& from) const;
  [[nodiscard]] std::vector<std::byte> read(const DeviceBytes& from) const;

  void begin_capture(cudaStreamCaptureMode mode) const {
    expect_ok(cudaStreamBeginCapture(stream, mode), "begin capture");
  }
  void end_capture();
  /// What `call` enqueues becomes this rank's graph.
  void capture(cudaStreamCaptureMode mode, const std::function<twResult_t()>& call);
  void replay() const { expect_ok(cudaGraphLaunch(graph.get(), stream), "launch"); }

  struct DestroyGraph {
    void operator()(cudaGraphExec_t made) const { cudaGraphExecDestroy(made); }
  };
  std::unique_ptr<CUgraphExec_st, DestroyGraph> graph{};
  bool copies_by_cpu = false;  ///< the test makes calls for which that is right
};

/// TENSORWIRE_PATH, and ranks that are spread over so many hosts, as consecutive ones; for as long as it lives.
class OnPath {
 public:
  OnPath(const char* path, int ranks, int hosts);
  ~OnPath();
  OnPath(const OnPath&) = delete;
  OnPath& operator=(const OnPath&) = delete;
};

/// Runs `body` as each of the ranks, over the GPUs in turn and the user-space HCA.
void as_api_ranks(int ranks, const std::function<void(ApiRank&)>& body, twConfig_t config = TW_CONFIG_INITIALIZER);

}  // namespace tensorwire::test
