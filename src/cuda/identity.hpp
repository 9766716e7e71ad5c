// What tells hosts and GPUs from others, as numbers that ranks compare.
#pragma once

#include <cstdint>

namespace tensorwire::cuda {

/// As base/host_identity.hpp; containers of one host with namespaces of their own need not reach each other's files and
/// sockets. TENSORWIRE_HOSTID says that they do: a name, or, where one process has ranks of several, names with commas
/// between them, of which `rank`'s is taken. @throws Error
[[nodiscard]] std::uint64_t host_identity(int rank);
/// The UUID of a GPU. @throws Error
[[nodiscard]] std::uint64_t gpu_identity(int device);

}  // namespace tensorwire::cuda
