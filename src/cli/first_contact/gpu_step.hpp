// Third step: GPUDirect, by a process of its own on each host.
#pragma once

#include <csignal>
#include <nlohmann/json_fwd.hpp>

#include "cli/first_contact/kit.hpp"
#include "cli/first_contact/outcome.hpp"
#include "cli/mesh/rails.hpp"
#include "cli/mesh/star.hpp"

namespace tensorwire::cli {

/// The answer of a rank: {pairs: [what gpudirect_part.hpp prints], no_gpu, died}.
[[nodiscard]] nlohmann::json examine_gpudirect(const RailWish& wish, const volatile std::sig_atomic_t& stop);

/// Rank 0: asks the first rank of each host.
[[nodiscard]] Outcome examine_gpus(Star& star, Kit& kit);

}  // namespace tensorwire::cli
