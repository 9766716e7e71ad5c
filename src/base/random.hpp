// A small, fast, seedable generator whose output is the same on every machine and compiler (std:: distributions
// are not). splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#pragma once

#include <cstdint>

namespace tensorwire {

/// The splitmix64 finaliser: a good 64-bit hash of `x`.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) noexcept {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

class Random {
 public:
  constexpr explicit Random(std::uint64_t seed) noexcept : state_(seed) {}

  constexpr std::uint64_t next() noexcept { return mix64(state_ += 0x9e3779b97f4a7c15ULL); }

  /// Uniform in [0, bound); bound must not be zero. Multiply-shift, without a modulo.
  constexpr std::uint32_t below(std::uint32_t bound) noexcept {
    return static_cast<std::uint32_t>(((next() >> 32) * bound) >> 32);
  }

  /// True with probability `per_million` / 1e6.
  constexpr bool chance(std::uint32_t per_million) noexcept { return below(1'000'000) < per_million; }

 private:
  std::uint64_t state_;
};

/// 64 bits from the operating system's entropy pool: seeds for keys and PSNs.
[[nodiscard]] std::uint64_t entropy64();

}  // namespace tensorwire
