#include "cli/mesh/schedule.hpp"

#include <algorithm>

namespace tensorwire::cli {

/// The circle method: the last stays where it is while the others move round by one each time.
std::vector<std::vector<MeshPair>> mesh_rounds(std::size_t hosts) {
  std::vector<std::vector<MeshPair>> rounds;
  if (hosts < 2) return rounds;
  const std::size_t places = hosts + hosts % 2;  // with an empty one where somebody sits out
  const std::size_t circle = places - 1;
  for (std::size_t turn = 0; turn < circle; ++turn) {
    std::vector<MeshPair>& round = rounds.emplace_back();
    const auto meet = [&](std::size_t a, std::size_t b) {
      if (a < hosts && b < hosts) round.emplace_back(std::min(a, b), std::max(a, b));
    };
    meet(circle, turn);
    for (std::size_t step = 1; step < places / 2; ++step) meet((turn + step) % circle, (turn + circle - step) % circle);
  }
  return rounds;
}

}  // namespace tensorwire::cli
