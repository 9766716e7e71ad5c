// Writes through one HCA to itself, by two queue pairs that are connected with each other: whether registered memory
// can really be written, and how fast.
#pragma once

#include <cstdint>

#include "verbs/gpudirect_mr.hpp"
#include "verbs/protection_domain.hpp"

namespace tensorwire::cli {

/// Fills `target` from `source` (of the same length) again and again, in pieces of 1 MiB with several under way.
/// @return GB/s. @throws Error
[[nodiscard]] double write_to_itself(const std::shared_ptr<verbs::ProtectionDomain>& domain,
                                     const verbs::MemoryRegion& source, const verbs::MemoryRegion& target,
                                     std::uint32_t rounds);

}  // namespace tensorwire::cli
