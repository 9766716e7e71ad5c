// What tells this host from others, as a number that ranks compare: its boot id and network namespace. Containers of
// one host with namespaces of their own reach neither each other's loopback interface nor, always, each other's files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorwire {

/// Of any bytes; never 0.
[[nodiscard]] std::uint64_t identity_of(std::span<const std::byte> bytes) noexcept;
[[nodiscard]] std::uint64_t host_identity() noexcept;
/// The same for ranks that share memory: TENSORWIRE_HOSTID may say that containers with namespaces of their own do. It
/// is a name, or, where one process has ranks of several hosts, names with commas between them, of which `rank`'s is
/// taken.
/// @throws Error where it has none for the rank
[[nodiscard]] std::uint64_t host_identity(int rank);

}  // namespace tensorwire
