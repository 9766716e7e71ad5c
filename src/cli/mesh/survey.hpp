// Rank 0's part of a mesh: asks the ranks to measure, round by round and rail by rail, and looks a second time at what
// is out of the ordinary before anybody is blamed for it.
#pragma once

#include <cstdint>
#include <functional>

#include "base/time.hpp"
#include "cli/mesh/judge.hpp"
#include "cli/mesh/matrix.hpp"
#include "cli/mesh/star.hpp"

namespace tensorwire::cli {

struct SurveyPlan {
  double seconds = 0.25;  ///< of each ping-pong and of each burst of writes
  int second_looks = 2;   ///< at pairs that are out of the ordinary
};

struct Survey {
  MeshMatrix mesh;
  MeshVerdict verdict;
  bool interrupted = false;
  std::size_t looked_again = 0;  ///< pairs
};

/// @param advance  is called with what is done and what there is to do
[[nodiscard]] Survey survey_mesh(Star& star, const SurveyPlan& plan,
                                 const std::function<void(std::uint64_t, std::uint64_t)>& advance);

}  // namespace tensorwire::cli
