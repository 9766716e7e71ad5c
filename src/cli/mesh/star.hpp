// Ranks that measure together although some may be missing or die: each is in touch with rank 0 alone, which asks and
// waits for no answer longer than it says. Who does not come, does not answer or goes away is given up, with the
// reason; the others go on. (A bootstrap::Group is for ranks that need each other: there the first death ends the job.)
#pragma once

#include <csignal>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "bootstrap/options.hpp"
#include "cli/mesh/json_line.hpp"

namespace tensorwire::cli {

/// What a rank answered, or why it did not.
struct StarAnswer {
  nlohmann::json body;
  std::string error;  ///< also what the rank itself says is wrong
  std::string why;    ///< of that error the cause alone

  [[nodiscard]] bool ok() const noexcept { return error.empty(); }
};

class Star {
 public:
  /// Rank 0: listens where the ranks meet until all are in or the group's timeout has passed. `own` is the line to rank
  /// 0's own part, which answers as every other rank does.
  /// @param stop  becomes non-zero when the user interrupts; no wait goes on after that
  /// @param tell  is called when a rank comes, with how many are in
  /// @throws Error when it cannot listen.
  Star(const bootstrap::GroupOptions& options, JsonLine own, const volatile std::sig_atomic_t& stop,
       const std::function<void(int)>& tell);

  [[nodiscard]] int size() const noexcept { return static_cast<int>(members_.size()); }
  [[nodiscard]] const std::string& host(int rank) const { return members_[index(rank)].host; }
  /// Why a rank was given up; empty: it is there.
  [[nodiscard]] const std::string& lost(int rank) const { return members_[index(rank)].lost; }
  [[nodiscard]] std::vector<int> present() const;
  [[nodiscard]] bool interrupted() const noexcept { return stop_ != 0; }

  /// Sends each rank its request. Returns when all have answered, were given up, or `bound` has passed, which gives up
  /// those who are still silent.
  std::map<int, StarAnswer> ask(const std::map<int, nlohmann::json>& requests, Ps bound);
  /// The same request to all who are there.
  std::map<int, StarAnswer> ask_all(const nlohmann::json& request, Ps bound);
  /// Tells all that it is over, and with which exit status.
  void dismiss(int status);

 private:
  struct Member {
    std::optional<JsonLine> line;
    std::string host;
    std::string lost;
  };

  static std::size_t index(int rank) noexcept { return static_cast<std::size_t>(rank); }
  void admit(bootstrap::Socket socket, const bootstrap::GroupOptions& options);
  void drop_who_left();
  [[nodiscard]] int missing() const;
  void give_up(int rank, std::string why);

  std::vector<Member> members_;
  std::string note_;  ///< what went wrong with those who were not let in
  const volatile std::sig_atomic_t& stop_;
};

/// Every other rank: finds rank 0 and proves the secret. @throws Error
[[nodiscard]] JsonLine join_star(const bootstrap::GroupOptions& options);

/// Answers what rank 0 asks until it says that it is over. What `handler` throws as an Error is the answer.
/// @return the exit status that rank 0 gave. @throws Error when rank 0 goes away or is silent for too long.
int answer_star(JsonLine& line, const std::function<nlohmann::json(const nlohmann::json&)>& handler);

}  // namespace tensorwire::cli
