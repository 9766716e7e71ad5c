// What is wrong with a measured mesh: a pure function of the matrix. Whatever is worse than the rest by a robust bound
// is traced to a rail, a host, a cable, a pair or a direction, and said in a sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/mesh/blame.hpp"
#include "cli/mesh/matrix.hpp"
#include "cli/mesh/schedule.hpp"

namespace tensorwire::cli {

enum class MeshTrouble : std::uint8_t {
  kAbsent,     ///< a host took no part
  kDevice,     ///< a device cannot be used, or is missing
  kUnreached,  ///< writes fail
  kLatency,
  kBandwidth,
};

struct MeshFinding {
  MeshTrouble trouble{};
  Blame blame;
  double measured = 0;  ///< us or GB/s, the median of the cells that are blamed
  double usual = 0;
  bool usual_is_line = false;  ///< no worse than the rest of the mesh, but far from what the line carries
  std::string sentence = {};
};

/// What a healthy cell of this mesh is like.
struct MeshUsual {
  double latency_us = 0;
  double latency_bound_us = 0;
  double bandwidth_gb_s = 0;
  double bandwidth_bound_gb_s = 0;
};

struct MeshVerdict {
  MeshUsual usual;
  std::vector<MeshFinding> findings;
  /// By rail, the pairs that have a bad cell: worth a second look before anybody is blamed.
  std::vector<std::vector<MeshPair>> suspects;
};

[[nodiscard]] MeshVerdict judge_mesh(const MeshMatrix& mesh);

[[nodiscard]] nlohmann::json verdict_json(const MeshVerdict& verdict, const MeshMatrix& mesh);

}  // namespace tensorwire::cli
