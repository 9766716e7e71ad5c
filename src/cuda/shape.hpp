// Which protocol carries an all-reduce, on how many lanes. A pure function of what all ranks know, so that all choose
// alike. The thresholds are measured: docs/gpu.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "collective/types.hpp"
#include "cuda/layout.hpp"

namespace tensorwire::cuda {

enum class Protocol : std::uint8_t {
  kLines,  ///< flags travel with the data: one hop, twice the bytes
  kWords,  ///< the data is its own flag: one hop, no byte more; for floating-point types
  kSlots,  ///< flags beside the data: the fewest bytes, and the link is never idle
};

[[nodiscard]] std::string_view name_of(Protocol protocol) noexcept;

struct Shape {
  Protocol protocol = Protocol::kLines;
  std::uint32_t lanes = 1;
  std::uint32_t threads = 512;    ///< of each lane
  std::uint32_t piece_bytes = 0;  ///< slots only: what goes through a slot at a time

  bool operator==(const Shape&) const = default;
};

/// Whether a tensor of `bytes` can go that way at all.
[[nodiscard]] bool fits(const Shape& shape, std::size_t bytes, collective::DType dtype, const Layout& layout) noexcept;

/// The shape for an all-reduce of `bytes`.
[[nodiscard]] Shape choose_shape(std::size_t bytes, collective::DType dtype, const Layout& layout) noexcept;

/// How rows are shared out by all_reduce_add_norm(): `lanes` blocks, `split` of them to a row. lanes is 0 where rows of
/// `row_units` do not fit.
struct RowShape {
  std::uint32_t lanes = 0;
  std::uint32_t threads = 0;
  std::uint32_t split = 1;
};
[[nodiscard]] RowShape choose_row_shape(std::size_t rows, std::size_t row_units, const Layout& layout) noexcept;

/// How a message between two ranks goes: on how many channels, and as lines or through slots.
struct MessageShape {
  std::uint32_t channels = 1;
  std::uint32_t piece_bytes = 0;  ///< that go through a slot at a time; 0: as lines
};
[[nodiscard]] MessageShape choose_message_shape(std::size_t bytes, const Layout& layout) noexcept;

/// Each lane's share of `bytes`, in units.
[[nodiscard]] std::size_t lane_units(std::size_t bytes, std::uint32_t lanes) noexcept;

}  // namespace tensorwire::cuda
