#include "bootstrap/names.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tensorwire::bootstrap {

std::string rank_list(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 8;
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  const std::size_t shown = std::min(ranks.size(), kShown);
  std::string text = "ranks ";
  for (std::size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == ranks.size();
    text += fmt::format("{}{}", i == 0 ? "" : last ? " and " : ", ", ranks[i]);
  }
  if (ranks.size() > shown) text += fmt::format(" and {} more", ranks.size() - shown);
  return text;
}

}  // namespace tensorwire::bootstrap
