#include "cli/mesh/outliers.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace tensorwire::cli {
namespace {

constexpr double kWorseByDeviations = 6;
constexpr double kDeviationOfMad = 1.4826;  // of a normal distribution

}  // namespace

UsualCost usual_cost(std::vector<double> costs, const Tolerance& tolerance) {
  if (costs.empty()) return {0, std::numeric_limits<double>::infinity()};
  std::ranges::sort(costs);
  const double usual = costs[(costs.size() - 1) / 4];
  costs.resize((costs.size() + 1) / 2);
  for (double& cost : costs) cost = std::abs(cost - usual);
  std::ranges::sort(costs);
  const double spread = kDeviationOfMad * costs[(costs.size() - 1) / 2];
  return {usual, usual + std::max({usual * tolerance.share, spread * kWorseByDeviations, tolerance.least})};
}

}  // namespace tensorwire::cli
