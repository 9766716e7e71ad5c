// Which devices of this host are the rails of a mesh: those that were named, else every RDMA device, else the
// user-space HCA's. A device that cannot be used keeps its place, with the reason.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/mesh/matrix.hpp"
#include "verbs/context.hpp"

namespace tensorwire::cli {

struct RailWish {
  std::vector<std::string> devices;  ///< "mlx5_0", "mlx5_1:1", "soft"; empty: all that are there
  std::optional<int> gid_index;
};

struct Rail {
  MeshEnd end;
  std::shared_ptr<verbs::Context> context;  ///< null where the end has a problem
};

/// @throws Error when there is no device at all.
[[nodiscard]] std::vector<Rail> open_rails(const RailWish& wish);

}  // namespace tensorwire::cli
