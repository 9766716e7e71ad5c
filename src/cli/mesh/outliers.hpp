// What is usual among many measurements of the same thing, and from where on one is out of the ordinary. Costs: more is
// worse.
#pragma once

#include <vector>

namespace tensorwire::cli {

struct UsualCost {
  double usual = 0;  ///< what the better quarter stays below: right although most cells touch the one bad host of three
  double bound = 0;  ///< what is above is bad
};

struct Tolerance {
  double share = 0.4;  ///< of the usual cost
  double least = 0;    ///< in the costs' own unit
};

/// The bound is above the usual cost by the tolerance, or by six deviations of the better half (by their median, so
/// that outliers have no say) where these spread more. Nothing is bad where `costs` is empty.
[[nodiscard]] UsualCost usual_cost(std::vector<double> costs, const Tolerance& tolerance);

}  // namespace tensorwire::cli
