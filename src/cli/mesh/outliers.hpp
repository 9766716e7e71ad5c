// What is usual among many measurements of the same thing, and from where on one is out of the ordinary. Costs: more is
// worse.
#pragma once

#include <vector>

namespace tensorwire::cli {

struct UsualCost {
  double usual = 0;  ///< what the better quarter stays below: right although most cells touch the one bad host of three
  double bound = 0;  ///< what is above is bad
};

/// The bound is 1.4 times the usual cost, or six deviations of the better half (by their median, so that outliers have
/// no say) where these spread more, and never less than `least_difference` above it. Nothing is bad where `costs` is
/// empty.
[[nodiscard]] UsualCost usual_cost(std::vector<double> costs, double least_difference);

}  // namespace tensorwire::cli
