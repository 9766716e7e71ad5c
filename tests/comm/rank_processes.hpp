// Runs a function as n ranks, each a process of its own, in a group over the loopback interface. What a rank reports is
// a status and lines of text, which the parent reads.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "bootstrap/group.hpp"
#include "comm/communicator.hpp"

namespace tensorwire::comm {

struct RankResult {
  int exit_code = -1;  ///< 128 + signal for a killed one
  std::string text;    ///< what the rank returned or, if it threw, the error line
  Ps lived = 0;        ///< from the start of all ranks
};

/// What one rank does; the text is for the parent. Throwing makes the exit code 1.
using RankMain = std::function<std::string(bootstrap::Group&)>;

/// Ranks that do not end within `bound` are killed; their exit code is then 137.
std::vector<RankResult> run_ranks(int ranks, const RankMain& rank_main, Ps bound = 60 * kSecond);

/// Options that use the user-space HCA.
CommOptions soft_options();

}  // namespace tensorwire::comm
