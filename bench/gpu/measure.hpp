// A rank's tensors and graphs for one way and size, and how long a replay takes on its GPU.
#pragma once

#include <vector>

#include "way.hpp"

namespace tensorwire::bench {

class Measured {
 public:
  /// Captures `operations` times {spacer, all-reduce}, and once the spacers alone. All ranks together.
  Measured(Way& way, const Place& place, std::size_t bytes, int operations);
  ~Measured();
  Measured(const Measured&) = delete;
  Measured& operator=(const Measured&) = delete;

  /// Microseconds of a replay on this GPU, all operations together.
  [[nodiscard]] float replay() { return replay_of(graph_); }
  [[nodiscard]] float replay_spacers() { return replay_of(spacers_); }
  /// Whether the last output is right in every element.
  [[nodiscard]] bool right() const;

 private:
  float replay_of(cudaGraphExec_t graph);
  cudaGraphExec_t capture(Way* way, int operations);

  int ranks_;
  std::size_t count_;
  void* in_;
  void* out_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t began_ = nullptr;
  cudaEvent_t ended_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
  cudaGraphExec_t spacers_ = nullptr;
};

}  // namespace tensorwire::bench
