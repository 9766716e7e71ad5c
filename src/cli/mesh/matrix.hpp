// What a mesh measurement is about: hosts, the ends that each has on the rails of the fabric, and a cell for every
// ordered pair of ends of a rail. Plain data; who measures is survey.hpp, who judges judge.hpp.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tensorwire::cli {

/// A device of a rank, as the rank tells of it.
struct MeshEnd {
  int rank = -1;          ///< -1: this host has no end on the rail
  std::size_t place = 0;  ///< among the ends of its rank
  std::string device;
  std::string netdev;
  std::string gid;
  std::string path;       ///< the device in one line, and why it was chosen
  bool software = false;  ///< an HCA of the CPU's: what it takes tells of the scheduler first
  double line_gb_s = 0;   ///< what the port can carry, each way; 0: unknown
  std::string problem;    ///< why it cannot be used; empty: it can

  [[nodiscard]] bool usable() const noexcept { return rank >= 0 && problem.empty(); }
};

struct MeshHost {
  std::string name;
  std::vector<MeshEnd> ends;  ///< by rail
  std::string absent;         ///< why nothing of it could be measured; empty: it is there
};

/// From one end to another. A round trip of a write has no direction: its latency is half of it.
struct MeshCell {
  bool measured = false;  ///< false, and no error: there was nothing to measure
  double latency_p50_us = 0;
  double latency_p99_us = 0;
  double bandwidth_gb_s = 0;
  std::string error;  ///< the whole line
  std::string why;    ///< its cause
  std::string word;   ///< the same in a word, for a matrix: "RETRY", "gone"

  [[nodiscard]] bool failed() const noexcept { return !error.empty(); }
};

class MeshMatrix {
 public:
  MeshMatrix() = default;
  MeshMatrix(std::vector<MeshHost> hosts, std::size_t rails);

  [[nodiscard]] const std::vector<MeshHost>& hosts() const noexcept { return hosts_; }
  [[nodiscard]] std::vector<MeshHost>& hosts() noexcept { return hosts_; }
  [[nodiscard]] std::size_t rails() const noexcept { return rails_; }
  [[nodiscard]] MeshCell& cell(std::size_t rail, std::size_t from, std::size_t to) {
    return cells_[(rail * hosts_.size() + from) * hosts_.size() + to];
  }
  [[nodiscard]] const MeshCell& cell(std::size_t rail, std::size_t from, std::size_t to) const {
    return cells_[(rail * hosts_.size() + from) * hosts_.size() + to];
  }
  /// Whether both hosts are there with a usable end on the rail.
  [[nodiscard]] bool has_pair(std::size_t rail, std::size_t a, std::size_t b) const;

 private:
  std::vector<MeshHost> hosts_;
  std::size_t rails_ = 0;
  std::vector<MeshCell> cells_;
};

/// What a rank told: its host's name and its ends; or why it never came.
struct MeshRank {
  std::string host;
  std::vector<MeshEnd> ends;  ///< in the order of its rails; MeshEnd::rank is filled in
  std::size_t first_rail = 0;
  std::string absent;
};

/// Ranks of one host become one row of the matrix as long as each brings other rails; an end that a rank before has
/// brought already (the same GID) counts once, unless there is but one host. A second rank on a rail makes a row of its
/// own: "gpu01 (rank 3)".
[[nodiscard]] MeshMatrix mesh_of_ranks(const std::vector<MeshRank>& ranks);

/// What a rank answers when it is asked for its ends, and back. @throws nlohmann::json::exception
[[nodiscard]] nlohmann::json introduction_of(const MeshRank& rank);
[[nodiscard]] MeshRank introduced_rank(const nlohmann::json& introduction);

[[nodiscard]] nlohmann::json mesh_json(const MeshMatrix& mesh);

}  // namespace tensorwire::cli
