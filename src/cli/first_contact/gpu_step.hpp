// Third step: GPUDirect, by a process of its own on each host.
#pragma once

#include <csignal>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/first_contact/kit.hpp"
#include "cli/first_contact/outcome.hpp"
#include "cli/mesh/rails.hpp"
#include "cli/mesh/star.hpp"

namespace tensorwire::cli {

/// What a rank's process printed, a line each. Pairs are told twice, before and after bytes are written; the later line
/// counts. `no_gpu`: why there is none, where one line says so.
[[nodiscard]] nlohmann::json gpudirect_pairs(const std::string& lines, std::string& no_gpu);

/// The answer of a rank: {pairs: [what gpudirect_part.hpp prints], no_gpu, died}.
[[nodiscard]] nlohmann::json examine_gpudirect(const RailWish& wish, const volatile std::sig_atomic_t& stop);

/// Rank 0: asks the first rank of each host.
[[nodiscard]] Outcome examine_gpus(Star& star, Kit& kit);

}  // namespace tensorwire::cli
