// Operations of the C API whose buffers are memory of a GPU: where they are, and how they run, from GPU to GPU or
// through host memory.
#pragma once

#include <optional>
#include <span>

#include "comm/c_api_handle.hpp"

/// Where a call's buffers are.
struct BufferPlace {
  std::optional<int> gpu;  ///< nothing: host memory, or no buffers
  bool is_mixed = false;
};
[[nodiscard]] BufferPlace place_of(const tensorwire::comm::Call& call) noexcept;
[[nodiscard]] BufferPlace place_of(const tensorwire::comm::Transfer& transfer) noexcept;

/// A call on memory of a GPU.
struct GpuCall {
  const char* name;
  twComm& handle;
  int gpu;
  void* stream;
};

/// Arguments are checked. Collectives run at once, also within a group: they wait for nobody. Messages within a group
/// run when it ends.
twResult_t submit_to_gpu(const GpuCall& call, const tensorwire::comm::Call& what) noexcept;
twResult_t submit_to_gpu(const GpuCall& call, const tensorwire::comm::Transfer& what) noexcept;
/// All of these messages together.
twResult_t run_on_gpu(const GpuCall& call, std::span<const tensorwire::comm::Transfer> transfers) noexcept;
