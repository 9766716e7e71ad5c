// The decode loop: tokens of all-reduces over several paths in turn (ABAB), each with fresh input, timed and checked.
// Collective over the session's group; every rank runs it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench/report.hpp"
#include "cli/bench/session.hpp"

namespace tensorwire::cli {

struct DecodePlan {
  std::string model;
  std::uint32_t all_reduces_per_token = 0;
  std::size_t count = 0;  ///< elements of one all-reduce
  std::vector<Ps> gaps;   ///< compute time between two all-reduces
  std::uint32_t verify_tokens = 1;
  std::uint32_t tokens = 10;           ///< timed, per path and gap
  std::int64_t plant_wrong_slot = -1;  ///< the operation of each token whose write goes to a wrong slot; -1: none
  std::string started_file;            ///< created when the first timed token begins
};

/// @return the report, the same on every rank. @throws Error when a path breaks.
[[nodiscard]] DecodeReport run_decode(Session& session, const DecodePlan& plan);

}  // namespace tensorwire::cli
