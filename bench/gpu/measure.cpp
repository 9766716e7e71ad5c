#include "measure.hpp"

#include "base/error.hpp"
#include "spacer.hpp"

namespace tensorwire::bench {

namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw Error(what, cudaGetErrorString(error));
}

}  // namespace

Measured::Measured(Way& way, const Place& place, std::size_t bytes, int operations)
    : ranks_(place.ranks), count_(bytes / 2), in_(way.allocate(bytes)), out_(way.allocate(bytes)) {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
  check(cudaEventCreate(&began_), "make an event");
  check(cudaEventCreate(&ended_), "make an event");
  fill_with_ones(in_, count_, stream_);
  if (!way.all_reduce(in_, out_, count_, stream_)) throw Error("all-reduce", way.describe());
  launch_spacer(in_, out_, ranks_, stream_);  // so that it is loaded before a capture
  check(cudaStreamSynchronize(stream_), "the first all-reduce");
  spacers_ = capture(nullptr, operations);
  graph_ = capture(&way, operations);
}

Measured::~Measured() {
  cudaGraphExecDestroy(graph_);
  cudaGraphExecDestroy(spacers_);
  cudaEventDestroy(began_);
  cudaEventDestroy(ended_);
  cudaStreamDestroy(stream_);
}

cudaGraphExec_t Measured::capture(Way* way, int operations) {
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin capture");
  for (int i = 0; i < operations; ++i) {
    launch_spacer(in_, out_, ranks_, stream_);
    if (way != nullptr && !way->all_reduce(in_, out_, count_, stream_)) throw Error("all-reduce", way->describe());
  }
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream_, &graph), "end capture");
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0), "instantiate a graph");
  check(cudaGraphDestroy(graph), "destroy a graph");
  check(cudaGraphUpload(executable, stream_), "upload a graph");
  check(cudaStreamSynchronize(stream_), "upload a graph");
  return executable;
}

float Measured::replay_of(cudaGraphExec_t graph) {
  check(cudaEventRecord(began_, stream_), "record");
  check(cudaGraphLaunch(graph, stream_), "launch a graph");
  check(cudaEventRecord(ended_, stream_), "record");
  check(cudaEventSynchronize(ended_), "a replay");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, began_, ended_), "read the time");
  return milliseconds * 1000;
}

bool Measured::right() const { return all_are(out_, count_, static_cast<float>(ranks_), stream_); }

}  // namespace tensorwire::bench
