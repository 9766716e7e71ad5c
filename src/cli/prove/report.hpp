// What `doctor watch --prove` found, for people and as JSON, and its exit status.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/prove/evidence.hpp"

namespace tensorwire::cli {

/// A burst of one rank to the next, as both ends saw it.
struct ProvenBurst {
  std::uint64_t payload = 0;
  std::uint64_t expected = 0;  ///< bytes on the wire
  host::BurstEnd sender, receiver;
  host::ClassProof proof;
};

/// @param ends  by rank
[[nodiscard]] std::vector<ProvenBurst> judge(const std::vector<Evidence>& ends, std::uint64_t payload, unsigned dscp);

/// @param switch_lines  what an imported dump says; empty: nothing was imported
[[nodiscard]] std::string proof_text(const std::vector<ProvenBurst>& bursts,
                                     const std::vector<std::string>& switch_lines);
[[nodiscard]] nlohmann::json proof_json(const std::vector<ProvenBurst>& bursts,
                                        const std::vector<std::string>& switch_lines);

/// 0: all is proven to ride in a lossless priority; 1: whether it is lossless is not known; 2: it is lossy somewhere;
/// 3: a class is not known.
[[nodiscard]] int exit_status(const std::vector<ProvenBurst>& bursts);

}  // namespace tensorwire::cli
