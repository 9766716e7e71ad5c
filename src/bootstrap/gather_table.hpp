// Rank 0's book of collective calls under way: who has come to which, whether they agree, who left. Plain data and no
// sockets. Every call is a gather; a broadcast or a barrier is one whose other parts are empty.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/messages.hpp"

namespace tensorwire::bootstrap {

class GatherTable {
 public:
  explicit GatherTable(std::vector<std::string> hosts) : hosts_(std::move(hosts)), left_(hosts_.size(), false) {}

  /// What a contribution led to. Neither field: the call waits for others.
  struct Step {
    std::optional<std::vector<Bytes>> complete;  ///< everyone's parts by rank
    std::string doomed;                          ///< why this call can never complete
  };

  [[nodiscard]] Step add(int rank, Contribution contribution);

  /// Ranks that have not come to a call that someone else has come to.
  [[nodiscard]] std::vector<int> missing(std::uint64_t sequence) const;

  /// A verdict for all who wait for this call or come to it later.
  void doom(std::uint64_t sequence, const std::string& why);

  /// The calls that `rank` will never come to, now doomed.
  [[nodiscard]] std::vector<Verdict> mark_left(int rank);

 private:
  struct Call {
    CallKind kind{};
    std::uint32_t root = 0;
    int first = 0;  ///< the rank that opened it
    std::vector<std::optional<Bytes>> parts;
  };

  [[nodiscard]] std::string name(int rank) const;
  [[nodiscard]] std::string objection(const Call& call, int rank, const Contribution& contribution) const;

  std::vector<std::string> hosts_;
  std::vector<bool> left_;
  std::map<std::uint64_t, Call> calls_;
  std::map<std::uint64_t, std::string> doomed_;
};

[[nodiscard]] std::string_view to_string(CallKind kind) noexcept;

}  // namespace tensorwire::bootstrap
