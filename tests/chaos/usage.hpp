// What a process holds: descriptors, threads, memory. For finding leaks.
#pragma once

#include <cstdint>
#include <string>

namespace tensorwire::chaos {

struct Usage {
  std::uint64_t descriptors = 0;
  std::uint64_t threads = 0;
  std::uint64_t heap = 0;      ///< bytes that malloc has given out and not got back
  std::uint64_t resident = 0;  ///< bytes
};

/// Of this process.
[[nodiscard]] Usage usage();

[[nodiscard]] std::string to_text(const Usage& usage);
/// @throws Error on other text than to_text() gives.
[[nodiscard]] Usage usage_of(const std::string& text);

}  // namespace tensorwire::chaos
