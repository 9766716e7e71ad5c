// What the functions of the C API have in common: refusals, and running or queueing an operation.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "comm/c_api_handle.hpp"
#include "comm/c_api_thread.hpp"

/// A refusal of a call without a communicator.
inline twResult_t refuse(twResult_t result, std::string line) noexcept {
  set_thread_line(std::move(line));
  return result;
}

inline twResult_t refuse(twComm_t comm, twResult_t result, std::string line) noexcept {
  return comm != nullptr ? comm->refuse(result, std::move(line)) : refuse(result, std::move(line));
}

inline twResult_t no_communicator(const char* call) noexcept {
  return refuse(twInvalidArgument, std::string{call} + ": the communicator is null");
}

/// Nothing: there is no such element type.
inline std::optional<tensorwire::collective::DType> dtype_from(int dtype) noexcept {
  using tensorwire::collective::DType;
  switch (dtype) {
    case twInt32:
      return DType::kInt32;
    case twFloat16:
      return DType::kFloat16;
    case twFloat32:
      return DType::kFloat32;
    case twBfloat16:
      return DType::kBfloat16;
    default:
      return std::nullopt;
  }
}

/// Runs `body(communicator)` while the handle is this thread's.
template <typename Body>
twResult_t operate(const char* call, twComm_t comm, Body&& body) noexcept {
  if (comm == nullptr) return no_communicator(call);
  const HandleInUse mine{*comm};
  const twResult_t ready = comm->ready(call, mine);
  return ready == twSuccess ? body(*comm->communicator()) : ready;
}
