// Who measures with whom, and when: rounds of disjoint pairs, so that no host is in two measurements at once.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace tensorwire::cli {

using MeshPair = std::pair<std::size_t, std::size_t>;

/// Every unordered pair of `hosts` once, the first of a pair being the lower number: hosts - 1 rounds, or as many as
/// there are hosts where that is odd and one sits out each time.
[[nodiscard]] std::vector<std::vector<MeshPair>> mesh_rounds(std::size_t hosts);

}  // namespace tensorwire::cli
