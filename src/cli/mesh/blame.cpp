#include "cli/mesh/blame.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace tensorwire::cli {
namespace {

constexpr double kShareOfBad = 0.75;
constexpr double kShareOfBadRail = 0.9;  // of three hosts one cable is two thirds of a rail
constexpr std::size_t kHostsToTellOne = 3;

/// An explanation that could be given, with all the cells that speak for it or against it (Blame::cells).
using Candidates = std::map<std::tuple<std::optional<std::size_t>, std::size_t, std::size_t, BlameWay>, Blame>;

class Blamer {
 public:
  explicit Blamer(const std::vector<JudgedCell>& cells) : cells_(cells), explained_(cells.size(), false) {
    std::set<std::size_t> rails;
    std::set<std::size_t> hosts;
    for (const JudgedCell& cell : cells) {
      rails.insert(cell.rail);
      hosts.insert({cell.from, cell.to});
    }
    many_rails_ = rails.size() > 1;
    many_hosts_ = hosts.size() >= kHostsToTellOne;
  }

  std::vector<Blame> run() {
    if (many_hosts_) take(everything(), 1.0, 2);
    if (many_hosts_ && many_rails_) take(rails(), kShareOfBadRail, 2);
    if (many_hosts_) take(hosts(true, false), kShareOfBad, 2);
    if (many_hosts_) take(hosts(false, false), kShareOfBad, 2);
    if (many_hosts_ && many_rails_) take(hosts(true, true), kShareOfBad, 2);
    if (many_hosts_ && many_rails_) take(hosts(false, true), kShareOfBad, 2);
    if (many_rails_) take(pairs(false), kShareOfBad, 1);
    take(pairs(true), kShareOfBad, 1);
    blame_what_is_left();
    return std::move(found_);
  }

 private:
  struct Count {
    std::size_t open = 0;                                 ///< not explained yet
    std::size_t bad = 0;                                  ///< of them
    std::set<std::pair<std::size_t, std::size_t>> pairs;  ///< of hosts that are bad

    [[nodiscard]] double share() const { return open == 0 ? 0 : static_cast<double>(bad) / static_cast<double>(open); }
  };

  [[nodiscard]] Count count(const Blame& candidate) const {
    Count count;
    for (const std::size_t i : candidate.cells) {
      if (explained_[i]) continue;
      ++count.open;
      if (!cells_[i].bad) continue;
      ++count.bad;
      count.pairs.emplace(std::min(cells_[i].from, cells_[i].to), std::max(cells_[i].from, cells_[i].to));
    }
    return count;
  }

  /// Blames the candidates that hold, the surest first, until none does.
  /// @param least_pairs  different pairs of hosts that must be bad, for it not to be just one of them
  void take(const Candidates& candidates, double share, std::size_t least_pairs) {
    for (;;) {
      const Blame* best = nullptr;
      std::pair<double, std::size_t> most{share, 0};
      for (const auto& [key, candidate] : candidates) {
        const Count now = count(candidate);
        if (now.bad == 0 || now.pairs.size() < least_pairs || std::pair{now.share(), now.bad} <= most) continue;
        best = &candidate;
        most = {now.share(), now.bad};
      }
      if (best == nullptr) return;
      blame(*best);
    }
  }

  void blame(const Blame& candidate) {
    Blame& found = found_.emplace_back(candidate);
    std::erase_if(found.cells, [this](std::size_t i) { return explained_[i] || !cells_[i].bad; });
    for (const std::size_t i : found.cells) explained_[i] = true;
  }

  static void add(Candidates& all, const Blame& blame, std::size_t cell) {
    all.try_emplace({blame.rail, blame.host, blame.peer, blame.way}, blame).first->second.cells.push_back(cell);
  }

  [[nodiscard]] Candidates everything() const {
    Candidates all;
    for (std::size_t i = 0; i < cells_.size(); ++i) add(all, Blame{.scope = BlameScope::kAll}, i);
    return all;
  }

  [[nodiscard]] Candidates rails() const {
    Candidates all;
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      add(all, Blame{.scope = BlameScope::kRail, .rail = cells_[i].rail}, i);
    }
    return all;
  }

  [[nodiscard]] Candidates hosts(bool both_ways, bool by_rail) const {
    Candidates all;
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      Blame blame{.scope = by_rail ? BlameScope::kCable : BlameScope::kHost};
      if (by_rail) blame.rail = cells_[i].rail;
      blame.host = cells_[i].from;
      blame.way = both_ways ? BlameWay::kBothWays : BlameWay::kSending;
      add(all, blame, i);
      blame.host = cells_[i].to;
      blame.way = both_ways ? BlameWay::kBothWays : BlameWay::kReceiving;
      add(all, blame, i);
    }
    return all;
  }

  [[nodiscard]] Candidates pairs(bool by_rail) const {
    Candidates all;
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      Blame blame{.scope = by_rail ? BlameScope::kRailPair : BlameScope::kPair};
      if (by_rail && many_rails_) blame.rail = cells_[i].rail;
      blame.host = std::min(cells_[i].from, cells_[i].to);
      blame.peer = std::max(cells_[i].from, cells_[i].to);
      add(all, blame, i);
    }
    return all;
  }

  void blame_what_is_left() {
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      if (explained_[i] || !cells_[i].bad) continue;
      Blame one{.scope = BlameScope::kRailPair, .way = BlameWay::kSending, .cells = {i}};
      if (many_rails_) one.rail = cells_[i].rail;
      one.host = cells_[i].from;
      one.peer = cells_[i].to;
      blame(one);
    }
  }

  const std::vector<JudgedCell>& cells_;
  std::vector<bool> explained_;
  bool many_rails_ = false;
  bool many_hosts_ = false;
  std::vector<Blame> found_;
};

}  // namespace

std::vector<Blame> find_blame(const std::vector<JudgedCell>& cells) { return Blamer{cells}.run(); }

}  // namespace tensorwire::cli
