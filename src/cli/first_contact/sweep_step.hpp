// Fourth step: all-reduces over all ranks, by this library as `tensorwire bench allreduce` does them, and by NCCL. Each
// is a job of processes of its own, a rank beside each rank that is there.
#pragma once

#include <csignal>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/first_contact/kit.hpp"
#include "cli/first_contact/outcome.hpp"
#include "cli/mesh/star.hpp"

namespace tensorwire::cli {

struct SweepPlan {
  std::string address;    ///< where the host of rank 0 is reached
  std::string max_bytes;  ///< the largest tensor: "16MiB"
};

/// The answer of a rank to "sweep" {part, max_bytes, rank, world, local_rank, local_world, address, port}: {status,
/// why, json, text}.
/// @param device  of this rank; empty: chosen
[[nodiscard]] nlohmann::json run_sweep_rank(const nlohmann::json& request, const std::string& device,
                                            const volatile std::sig_atomic_t& stop);

/// Rank 0.
[[nodiscard]] Outcome sweep_all_reduce(Star& star, const SweepPlan& plan, Kit& kit);
[[nodiscard]] Outcome sweep_nccl(Star& star, const SweepPlan& plan, Kit& kit);

}  // namespace tensorwire::cli
