// What proxies moved between hosts, for statistics.
#pragma once

#include <cstdint>

namespace tensorwire::comm {

/// What went between the ranks, by whom a kernel handed it to.
struct Carried {
  std::uint64_t bytes_written = 0;  ///< to peers
  std::uint64_t bytes_copied = 0;   ///< by the CPU

  Carried& operator+=(const Carried& more) noexcept {
    bytes_written += more.bytes_written;
    bytes_copied += more.bytes_copied;
    return *this;
  }
};

}  // namespace tensorwire::comm
