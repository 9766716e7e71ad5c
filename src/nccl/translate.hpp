// From NCCL's numbers to those of Tensorwire's C API, and its results back. Nothing here calls anything.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>

#include "nccl/abi.hpp"

namespace tensorwire::nccl {

/// What is moved and not reduced, as elements that Tensorwire has.
struct Moved {
  twDataType_t dtype;
  std::size_t count;
};

[[nodiscard]] const char* name_of(DataType dtype) noexcept;
[[nodiscard]] const char* name_of(RedOp op) noexcept;

/// Bytes of an element; 0: there is no such type.
[[nodiscard]] std::size_t size_of(DataType dtype) noexcept;
/// Nothing: not reduced.
[[nodiscard]] std::optional<twDataType_t> reduced(DataType dtype) noexcept;
[[nodiscard]] std::optional<twRedOp_t> reduced_by(RedOp op) noexcept;
/// Nothing: an odd number of bytes, an odd address, or no such type.
[[nodiscard]] std::optional<Moved> moved(std::size_t count, DataType dtype,
                                         std::initializer_list<const void*> buffers) noexcept;

[[nodiscard]] Result result_of(twResult_t result) noexcept;

}  // namespace tensorwire::nccl
