// First step: the doctor's recording and verdict of each host, and what hosts disagree about.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/first_contact/kit.hpp"
#include "cli/first_contact/outcome.hpp"
#include "cli/mesh/star.hpp"

namespace tensorwire::cli {

/// The answer of a rank: its recording, without what is nobody's business, under pseudonyms where the request has a key
/// and names; and what the doctor makes of it. @throws Error
[[nodiscard]] nlohmann::json record_host(const nlohmann::json& request);

/// Rank 0: asks the first rank of each host.
[[nodiscard]] Outcome record_hosts(Star& star, const std::string& pseudonym_key, Kit& kit);

/// The lowest rank of each host that is there.
[[nodiscard]] std::vector<int> first_ranks(const Star& star);

}  // namespace tensorwire::cli
