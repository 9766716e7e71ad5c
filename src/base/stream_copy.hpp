// A copy for memory that another core reads next and has read before. Plain stores must first take each cache line back
// from that core, which on some processors costs more than all the rest (measured on an AMD EPYC: 28 ns a line, so
// 128 KiB take 57 us; streamed they take 5). Stores that go past the caches need not.
#pragma once

#include <cstddef>

namespace tensorwire {

/// From here on streaming is worth its fence.
inline constexpr std::size_t kWorthStreaming = 2048;

/// Whether it is on this processor: TENSORWIRE_STREAM, else by its maker.
[[nodiscard]] bool streaming_pays();

/// As memcpy. The bytes are ordered before every later store of this thread.
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

}  // namespace tensorwire
