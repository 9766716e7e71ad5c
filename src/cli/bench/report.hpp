// What a decode benchmark found, as data; and its two renderings: a table for people, JSON for programs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "cli/bench/statistics.hpp"

namespace tensorwire::cli {

/// One path at one gap.
struct PathResult {
  std::string path;         ///< "local", "roce", "rdma", "tcp", "udp-floor"
  std::string description;  ///< how its bytes travel, in the path's own words
  Ps gap = 0;
  LatencySummary latency;                ///< per all-reduce, maximum over ranks in each iteration
  std::uint64_t operations = 0;          ///< timed ones
  std::optional<std::uint64_t> packets;  ///< sent by all ranks; nothing where the path does not know
  std::optional<std::uint64_t> retransmissions;
  Ps cpu = 0;  ///< user + system time of all ranks in the timed tokens
};

struct DecodeReport {
  std::string model;
  std::string dtype;
  std::string algorithm;
  int ranks = 0;
  std::uint32_t all_reduces_per_token = 0;
  std::uint64_t bytes = 0;  ///< per all-reduce
  std::uint64_t verified_operations = 0;
  std::uint64_t mismatches = 0;
  double tcp_over_bare = 0;  ///< p50 of the plan over TCP / p50 of the bare exchange, worst gap
  bool tcp_valid = true;
  std::vector<std::string> notes;
  std::vector<PathResult> results;
};

/// The budget that a token's communication is held against: interactive decode.
inline constexpr Ps kTokenBudget = 15 * kMillisecond;

/// p50 of one all-reduce times the all-reduces of a token, in milliseconds.
[[nodiscard]] double comm_ms_per_token(const PathResult& result, const DecodeReport& report);

[[nodiscard]] std::string render_table(const DecodeReport& report);
[[nodiscard]] nlohmann::json render_json(const DecodeReport& report);

/// Writes `text` to `path` so that a reader sees the old file or the whole new one, never half. @throws Error.
void write_file(const std::string& path, const std::string& text);

}  // namespace tensorwire::cli
