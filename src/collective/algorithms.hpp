// The builders, one for each algorithm: what one rank does for one sequence number of its pairs. Called through
// build_program() (builders.hpp). All throw Error on a bad shape or rank. Pure functions.
#pragma once

#include "collective/builders.hpp"

namespace tensorwire::collective {

/// Every rank writes its whole tensor to every other: one hop, (n-1) x bytes sent by each rank. Sums in rank order.
[[nodiscard]] Program build_one_shot(const Shape& shape, std::uint32_t rank,
                                     WriteSource source = WriteSource::kSendSlot);

/// Reduce-scatter, then all-gather: two hops, 2 x (n-1)/n x bytes sent by each rank. Sums in rank order.
[[nodiscard]] Program build_two_shot(const Shape& shape, std::uint32_t rank);

}  // namespace tensorwire::collective
