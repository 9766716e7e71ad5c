#include "cli/mesh/survey.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/mesh/probe.hpp"

namespace tensorwire::cli {
namespace {

using Json = nlohmann::json;

constexpr Ps kIntroductionBound = 30 * kSecond;
constexpr Ps kOpenBound = 20 * kSecond;  ///< the first time memory is registered

/// "RETRY" of "... (RETRY_EXC_ERR) ...": what an error is in the width of a cell.
std::string word_of(const std::string& error) {
  if (error.find("RETRY_EXC_ERR") != std::string::npos) return "RETRY";
  if (error.find("in time") != std::string::npos) return "silent";
  if (error.find("no route") != std::string::npos) return "route";
  if (error.find("GID") != std::string::npos) return "GID";
  return "error";
}

/// From one end to another.
struct Direction {
  std::size_t from = 0;
  std::size_t to = 0;
  bool over = false;  ///< there is an error, or nothing can be said
};

class Surveyor {
 public:
  Surveyor(Star& star, const SurveyPlan& plan, const std::function<void(std::uint64_t, std::uint64_t)>& advance)
      : star_(star), plan_(plan), advance_(advance) {}

  Survey run() {
    introduce();
    const auto rounds = mesh_rounds(hosts().size());
    to_do_ = survey_.mesh.rails() * rounds.size();
    advance_(0, to_do_);
    for (std::size_t rail = 0; rail < survey_.mesh.rails(); ++rail) {
      for (const auto& round : rounds) measure_round(rail, round);
    }
    survey_.verdict = judge_mesh(survey_.mesh);
    for (int look = 0; look < plan_.second_looks && !star_.interrupted(); ++look) look_again(look == 0);
    survey_.interrupted = star_.interrupted();
    static_cast<void>(star_.ask_all({{"op", "close"}}, kProbeBound));
    return std::move(survey_);
  }

 private:
  std::vector<MeshHost>& hosts() { return survey_.mesh.hosts(); }

  void introduce() {
    std::vector<MeshRank> ranks(static_cast<std::size_t>(star_.size()));
    const auto answers = star_.ask_all({{"op", "introduce"}}, kIntroductionBound);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const int rank = static_cast<int>(i);
      const auto found = answers.find(rank);
      if (found == answers.end() || !found->second.ok()) {
        ranks[i].absent = found == answers.end() ? star_.lost(rank) : found->second.error;
      } else {
        ranks[i] = introduced_rank(found->second.body);
      }
      ranks[i].host = star_.host(rank);
    }
    survey_.mesh = mesh_of_ranks(ranks);
  }

  void measure_round(std::size_t rail, const std::vector<MeshPair>& pairs) {
    std::vector<Direction> there;
    for (const auto& [a, b] : pairs) {
      if (survey_.mesh.has_pair(rail, a, b)) there.push_back({a, b});
    }
    measure(rail, there);
    std::vector<Direction> back;
    for (const Direction& way : there) {
      // A ping-pong that failed has failed for both ways.
      const MeshCell& cell = survey_.mesh.cell(rail, way.from, way.to);
      if (cell.failed() && cell.latency_p50_us == 0) {
        survey_.mesh.cell(rail, way.to, way.from) = cell;
      } else {
        back.push_back({way.to, way.from});
      }
    }
    measure(rail, back);
    drop_who_is_lost(rail);
    ++done_;
    advance_(done_, std::max(done_, to_do_));
  }

  /// All of them at once: no end is in two.
  void measure(std::size_t rail, std::vector<Direction>& ways) {
    if (ways.empty() || star_.interrupted()) return;
    connect(rail, ways);
    const Json seconds = plan_.seconds;
    const Ps bound = static_cast<Ps>(plan_.seconds * static_cast<double>(kSecond)) + kProbeBound + kSecond;
    ask(
        rail, ways, bound,
        [&](const Direction&) {
          return std::pair{Json{{"op", "ping"}, {"seconds", seconds}}, Json{{"op", "echo"}, {"seconds", seconds}}};
        },
        [](MeshCell& cell, const Json& answer) {
          cell.latency_p50_us = answer.at("p50_us").get<double>();
          cell.latency_p99_us = answer.at("p99_us").get<double>();
        });
    ask(
        rail, ways, bound,
        [&](const Direction&) {
          return std::pair{Json{{"op", "write"}, {"seconds", seconds}}, Json()};
        },
        [](MeshCell& cell, const Json& answer) {
          cell.bandwidth_gb_s = answer.at("gb_s").get<double>();
          cell.measured = true;
        });
  }

  void connect(std::size_t rail, std::vector<Direction>& ways) {
    for (Direction& way : ways) survey_.mesh.cell(rail, way.from, way.to) = {};
    std::map<int, Json> addresses;
    const auto open = [&](std::size_t host, std::size_t peer) {
      const MeshEnd& other = end(rail, peer);
      return Json{{"op", "open"},
                  {"rail", end(rail, host).place},
                  {"rank", other.rank},
                  {"peer", fmt::format("{} {}", hosts()[peer].name, other.device)}};
    };
    ask(
        rail, ways, kOpenBound,
        [&](const Direction& way) {
          return std::pair{open(way.from, way.to), open(way.to, way.from)};
        },
        [](MeshCell&, const Json&) {}, &addresses);
    const auto address_of = [&](std::size_t host) {
      Json request = addresses[end(rail, host).rank];
      request["op"] = "connect";
      return request;
    };
    ask(
        rail, ways, kOpenBound,
        [&](const Direction& way) {
          return std::pair{address_of(way.to), address_of(way.from)};
        },
        [](MeshCell&, const Json&) {});
  }

  /// Asks both ends of every direction that is not over yet; an empty request is not sent.
  /// @param take  gets the answer of the one that sends
  template <class Requests, class Take>
  void ask(std::size_t rail, std::vector<Direction>& ways, Ps bound, Requests requests_of, Take take,
           std::map<int, Json>* all = nullptr) {
    std::map<int, Json> requests;
    for (const Direction& way : ways) {
      if (way.over) continue;
      auto [from, to] = requests_of(way);
      requests[end(rail, way.from).rank] = std::move(from);
      if (!to.is_null()) requests[end(rail, way.to).rank] = std::move(to);
    }
    auto answers = star_.ask(requests, bound);
    for (Direction& way : ways) {
      if (way.over) continue;
      MeshCell& cell = survey_.mesh.cell(rail, way.from, way.to);
      const StarAnswer& from = answers[end(rail, way.from).rank];
      const StarAnswer& to = answers[end(rail, way.to).rank];
      if (!from.ok() || !to.ok()) {
        way.over = true;
        if (star_.interrupted()) continue;
        const StarAnswer& failed = from.ok() ? to : from;
        cell.error = failed.error;
        cell.why = failed.why.empty() ? failed.error : failed.why;
        cell.word = word_of(cell.error);
        cell.measured = false;
        continue;
      }
      take(cell, from.body);
    }
    if (all == nullptr) return;
    for (auto& [rank, answer] : answers) (*all)[rank] = std::move(answer.body);
  }

  [[nodiscard]] const MeshEnd& end(std::size_t rail, std::size_t host) { return hosts()[host].ends[rail]; }

  /// Whoever was given up takes no part from here on; what failed with it says nothing about the way there.
  void drop_who_is_lost(std::size_t rail) {
    if (star_.interrupted()) return;
    for (std::size_t host = 0; host < hosts().size(); ++host) {
      MeshHost& row = hosts()[host];
      for (std::size_t other_rail = 0; row.absent.empty() && other_rail < survey_.mesh.rails(); ++other_rail) {
        MeshEnd& there = row.ends[other_rail];
        if (there.rank < 0 || star_.lost(there.rank).empty() || !there.problem.empty()) continue;
        there.problem = star_.lost(there.rank);
        for (std::size_t peer = 0; peer < hosts().size(); ++peer) forget_failure(rail, host, peer);
      }
      if (row.absent.empty() && std::ranges::none_of(row.ends, &MeshEnd::usable) && lost_all(row)) {
        row.absent = star_.lost(std::ranges::find_if(row.ends, [](const MeshEnd& e) { return e.rank >= 0; })->rank);
      }
    }
  }

  [[nodiscard]] bool lost_all(const MeshHost& host) const {
    bool any = false;
    for (const MeshEnd& there : host.ends) {
      if (there.rank < 0) continue;
      any = true;
      if (star_.lost(there.rank).empty()) return false;
    }
    return any;
  }

  void forget_failure(std::size_t rail, std::size_t a, std::size_t b) {
    for (MeshCell* cell : {&survey_.mesh.cell(rail, a, b), &survey_.mesh.cell(rail, b, a)}) {
      if (cell->failed()) *cell = {};
    }
  }

  /// The better of two looks counts. What failed is not asked a third time: each attempt takes seconds.
  void look_again(bool also_failures) {
    for (std::size_t rail = 0; rail < survey_.mesh.rails(); ++rail) {
      std::vector<MeshPair> left;
      for (const MeshPair& pair : survey_.verdict.suspects[rail]) {
        const bool failed = survey_.mesh.cell(rail, pair.first, pair.second).failed() ||
                            survey_.mesh.cell(rail, pair.second, pair.first).failed();
        if (also_failures || !failed) left.push_back(pair);
      }
      survey_.looked_again += left.size();
      while (!left.empty() && !star_.interrupted()) again(rail, take_disjoint(left));
    }
    survey_.verdict = judge_mesh(survey_.mesh);
  }

  static std::vector<MeshPair> take_disjoint(std::vector<MeshPair>& left) {
    std::set<std::size_t> busy;
    std::vector<MeshPair> round;
    std::erase_if(left, [&](const MeshPair& pair) {
      if (busy.contains(pair.first) || busy.contains(pair.second)) return false;
      busy.insert({pair.first, pair.second});
      round.push_back(pair);
      return true;
    });
    return round;
  }

  void again(std::size_t rail, const std::vector<MeshPair>& pairs) {
    std::vector<std::pair<MeshCell, MeshCell>> before;
    for (const auto& [a, b] : pairs) {
      before.emplace_back(survey_.mesh.cell(rail, a, b), survey_.mesh.cell(rail, b, a));
    }
    measure_round(rail, pairs);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      keep_better(survey_.mesh.cell(rail, pairs[i].first, pairs[i].second), before[i].first);
      keep_better(survey_.mesh.cell(rail, pairs[i].second, pairs[i].first), before[i].second);
    }
  }

  static void keep_better(MeshCell& now, const MeshCell& before) {
    if (!before.measured) return;
    if (!now.measured) {
      now = before;
      return;
    }
    if (before.latency_p50_us < now.latency_p50_us) {
      now.latency_p50_us = before.latency_p50_us;
      now.latency_p99_us = before.latency_p99_us;
    }
    now.bandwidth_gb_s = std::max(now.bandwidth_gb_s, before.bandwidth_gb_s);
  }

  Star& star_;
  const SurveyPlan& plan_;
  const std::function<void(std::uint64_t, std::uint64_t)>& advance_;
  Survey survey_;
  std::uint64_t done_ = 0;
  std::uint64_t to_do_ = 0;
};

}  // namespace

Survey survey_mesh(Star& star, const SurveyPlan& plan,
                   const std::function<void(std::uint64_t, std::uint64_t)>& advance) {
  return Surveyor{star, plan, advance}.run();
}

}  // namespace tensorwire::cli
