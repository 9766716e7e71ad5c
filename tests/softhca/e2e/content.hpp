// What messages of tests hold: bytes that follow from who sends to whom and which message it is, so that the receiver
// knows them without being told.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/random.hpp"

namespace tensorwire::softhca::testing {

/// Message `number` from a worker to a peer: its length and bytes follow from who, to whom and which.
class Content {
 public:
  Content(int side, int from, int to, std::uint32_t number, std::uint32_t longest)
      : random_(mix64((static_cast<std::uint64_t>(side * 100 + from) * 100 + static_cast<std::uint64_t>(to)) << 32 |
                      number)),
        bytes_(random_.below(4) == 0 ? random_.below(64) : random_.below(longest + 1)) {}

  [[nodiscard]] std::uint32_t bytes() const { return bytes_; }

  void write(std::byte* to) {
    for (std::uint32_t i = 0; i < bytes_; ++i) to[i] = static_cast<std::byte>(next(i));
  }
  bool equals(const std::byte* at) {
    for (std::uint32_t i = 0; i < bytes_; ++i) {
      if (at[i] != static_cast<std::byte>(next(i))) return false;
    }
    return true;
  }

 private:
  std::uint64_t next(std::uint32_t i) {
    if (i % 8 == 0) word_ = random_.next();
    return word_ >> (8 * (i % 8));
  }

  Random random_;
  std::uint32_t bytes_;
  std::uint64_t word_ = 0;
};

}  // namespace tensorwire::softhca::testing
