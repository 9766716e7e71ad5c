// What every rank of a mesh does: open its rails, tell of them, and measure what rank 0 asks for. A room for more
// requests, which first-contact has.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bootstrap/options.hpp"
#include "cli/mesh/probe.hpp"
#include "cli/mesh/rails.hpp"
#include "cli/mesh/star.hpp"

namespace tensorwire::cli {

class HostPart {
 public:
  HostPart(const bootstrap::GroupOptions& options, const RailWish& wish) : options_(options), wish_(wish) {}

  nlohmann::json handle(const nlohmann::json& request);

 private:
  /// Under a launcher with several ranks on this host each has one of the devices, else the one has all.
  nlohmann::json introduce();

  const bootstrap::GroupOptions& options_;
  const RailWish& wish_;
  std::optional<Probe> probe_;
};

using HostHandler = std::function<nlohmann::json(const nlohmann::json&)>;

/// Runs `lead` at rank 0, which asks, and answers with `handler` at every rank, rank 0 included.
/// @return the exit status, the same at every rank that was there to the end. @throws Error
int run_star(const bootstrap::GroupOptions& options, const HostHandler& handler, const std::function<int(Star&)>& lead);

}  // namespace tensorwire::cli
