// Explicit byte order: the only way that wire structs are read and written (never by casts).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tensorwire {

constexpr void store_be16(std::byte* p, std::uint16_t v) noexcept {
  p[0] = static_cast<std::byte>(v >> 8);
  p[1] = static_cast<std::byte>(v);
}

constexpr void store_be24(std::byte* p, std::uint32_t v) noexcept {
  p[0] = static_cast<std::byte>(v >> 16);
  store_be16(p + 1, static_cast<std::uint16_t>(v));
}

constexpr void store_be32(std::byte* p, std::uint32_t v) noexcept {
  store_be16(p, static_cast<std::uint16_t>(v >> 16));
  store_be16(p + 2, static_cast<std::uint16_t>(v));
}

constexpr void store_be64(std::byte* p, std::uint64_t v) noexcept {
  store_be32(p, static_cast<std::uint32_t>(v >> 32));
  store_be32(p + 4, static_cast<std::uint32_t>(v));
}

constexpr void store_le32(std::byte* p, std::uint32_t v) noexcept {
  for (int i = 0; i < 4; ++i) p[i] = static_cast<std::byte>(v >> (8 * i));
}

constexpr void store_le64(std::byte* p, std::uint64_t v) noexcept {
  store_le32(p, static_cast<std::uint32_t>(v));
  store_le32(p + 4, static_cast<std::uint32_t>(v >> 32));
}

[[nodiscard]] constexpr std::uint16_t load_be16(const std::byte* p) noexcept {
  return static_cast<std::uint16_t>((std::to_integer<unsigned>(p[0]) << 8) | std::to_integer<unsigned>(p[1]));
}

[[nodiscard]] constexpr std::uint32_t load_be24(const std::byte* p) noexcept {
  return (std::to_integer<std::uint32_t>(p[0]) << 16) | load_be16(p + 1);
}

[[nodiscard]] constexpr std::uint32_t load_be32(const std::byte* p) noexcept {
  return (std::uint32_t{load_be16(p)} << 16) | load_be16(p + 2);
}

[[nodiscard]] constexpr std::uint64_t load_be64(const std::byte* p) noexcept {
  return (std::uint64_t{load_be32(p)} << 32) | load_be32(p + 4);
}

[[nodiscard]] constexpr std::uint32_t load_le32(const std::byte* p) noexcept {
  std::uint32_t v = 0;
  for (int i = 3; i >= 0; --i) v = (v << 8) | std::to_integer<std::uint32_t>(p[i]);
  return v;
}

[[nodiscard]] constexpr std::uint64_t load_le64(const std::byte* p) noexcept {
  return load_le32(p) | std::uint64_t{load_le32(p + 4)} << 32;
}

}  // namespace tensorwire
