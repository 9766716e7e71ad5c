#include "cli/mesh/matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace tensorwire::cli {
namespace {

using Json = nlohmann::json;

/// The row of this host that has nothing on the rail yet; a new one where all have.
MeshHost& row_for(std::vector<MeshHost>& rows, const std::string& host, int rank, std::size_t rail) {
  bool known = false;
  for (MeshHost& row : rows) {
    if (row.name != host && !row.name.starts_with(host + " (rank ")) continue;
    known = true;
    if (row.absent.empty() && (row.ends.size() <= rail || row.ends[rail].rank < 0)) return row;
  }
  return rows.emplace_back(MeshHost{known ? fmt::format("{} (rank {})", host, rank) : host, {}, {}});
}

Json end_json(const MeshEnd& end, std::size_t rail) {
  return {{"rail", rail},
          {"rank", end.rank},
          {"device", end.device},
          {"interface", end.netdev},
          {"gid", end.gid},
          {"path", end.path},
          {"software", end.software},
          {"line_gb_s", end.line_gb_s > 0 ? Json(end.line_gb_s) : Json(nullptr)},
          {"problem", end.problem}};
}

Json host_json(const MeshHost& host) {
  Json ends = Json::array();
  for (std::size_t rail = 0; rail < host.ends.size(); ++rail) {
    if (host.ends[rail].rank >= 0) ends.push_back(end_json(host.ends[rail], rail));
  }
  return {{"name", host.name}, {"ends", std::move(ends)}, {"absent", host.absent}};
}

Json cell_json(const MeshMatrix& mesh, std::size_t rail, std::size_t from, std::size_t to) {
  const MeshCell& cell = mesh.cell(rail, from, to);
  Json value{{"rail", rail}, {"from", mesh.hosts()[from].name}, {"to", mesh.hosts()[to].name}};
  if (cell.failed()) {
    value["error"] = cell.error;
  } else {
    value["latency_p50_us"] = cell.latency_p50_us;
    value["latency_p99_us"] = cell.latency_p99_us;
    value["bandwidth_gb_s"] = cell.bandwidth_gb_s;
  }
  return value;
}

}  // namespace

MeshMatrix::MeshMatrix(std::vector<MeshHost> hosts, std::size_t rails)
    : hosts_(std::move(hosts)), rails_(rails), cells_(rails * hosts_.size() * hosts_.size()) {
  for (MeshHost& host : hosts_) host.ends.resize(rails);
}

bool MeshMatrix::has_pair(std::size_t rail, std::size_t a, std::size_t b) const {
  const auto there = [&](std::size_t host) { return hosts_[host].absent.empty() && hosts_[host].ends[rail].usable(); };
  return a != b && there(a) && there(b);
}

MeshMatrix mesh_of_ranks(const std::vector<MeshRank>& ranks) {
  std::vector<MeshHost> rows;
  std::set<std::string> names;
  for (const MeshRank& rank : ranks) names.insert(rank.host);
  std::set<std::pair<std::string, std::string>> taken;  // host and GID
  std::size_t rails = 1;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const MeshRank& told = ranks[rank];
    if (!told.absent.empty()) {
      rows.push_back({told.host.empty() ? fmt::format("rank {}", rank) : told.host, {}, told.absent});
      continue;
    }
    for (std::size_t i = 0; i < told.ends.size(); ++i) {
      MeshEnd end = told.ends[i];
      if (names.size() > 1 && !end.gid.empty() && !taken.emplace(told.host, end.gid).second) continue;
      end.rank = static_cast<int>(rank);
      end.place = i;
      const std::size_t rail = told.first_rail + i;
      MeshHost& row = row_for(rows, told.host, end.rank, rail);
      if (row.ends.size() <= rail) row.ends.resize(rail + 1);
      row.ends[rail] = std::move(end);
      rails = std::max(rails, rail + 1);
    }
  }
  return {std::move(rows), rails};
}

Json introduction_of(const MeshRank& rank) {
  Json ends = Json::array();
  for (const MeshEnd& end : rank.ends) ends.push_back(end_json(end, 0));
  return {{"ends", std::move(ends)}, {"first_rail", rank.first_rail}};
}

MeshRank introduced_rank(const Json& introduction) {
  MeshRank rank;
  rank.first_rail = introduction.at("first_rail").get<std::size_t>();
  for (const Json& value : introduction.at("ends")) {
    MeshEnd& end = rank.ends.emplace_back();
    end.device = value.at("device").get<std::string>();
    end.netdev = value.at("interface").get<std::string>();
    end.gid = value.at("gid").get<std::string>();
    end.path = value.at("path").get<std::string>();
    end.software = value.at("software").get<bool>();
    if (const Json& line = value.at("line_gb_s"); !line.is_null()) end.line_gb_s = line.get<double>();
    end.problem = value.at("problem").get<std::string>();
  }
  return rank;
}

Json mesh_json(const MeshMatrix& mesh) {
  Json hosts = Json::array();
  for (const MeshHost& host : mesh.hosts()) hosts.push_back(host_json(host));
  Json cells = Json::array();
  for (std::size_t rail = 0; rail < mesh.rails(); ++rail) {
    for (std::size_t from = 0; from < mesh.hosts().size(); ++from) {
      for (std::size_t to = 0; to < mesh.hosts().size(); ++to) {
        const MeshCell& cell = mesh.cell(rail, from, to);
        if (cell.measured || cell.failed()) cells.push_back(cell_json(mesh, rail, from, to));
      }
    }
  }
  return {{"version", 1}, {"rails", mesh.rails()}, {"hosts", std::move(hosts)}, {"cells", std::move(cells)}};
}

}  // namespace tensorwire::cli
