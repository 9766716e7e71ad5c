// Traces of the ranks of one job, put on one clock. The clocks of two ranks are compared by the messages between them:
// a message arrives after it was sent, so the fastest one each way bounds how far the clocks are apart (as NTP does).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tensorwire::cli {

/// One rank's file, as it was read.
struct RankTrace {
  std::string path;
  nlohmann::json content;
};

/// How one rank's clock was aligned: add `offset_us` to its times.
struct ClockAlignment {
  std::string path;
  std::uint32_t rank = 0;
  std::uint32_t communicator = 0;
  double offset_us = 0;
  double within_us = 0;     ///< the truth is no further away, whatever the network did; if by_messages
  bool by_messages = true;  ///< false: no messages both ways lead to the first file; the system's clock had to do
};

struct MergedTrace {  // NOLINT(bugprone-exception-escape): moving JSON asserts, it does not throw
  nlohmann::json content;
  std::vector<ClockAlignment> clocks;  ///< in the order of the input
  std::uint64_t messages = 0;          ///< whose both ends are there
};

/// @throws Error naming the file when it is no trace of ours, or two files hold the same rank of one communicator.
[[nodiscard]] RankTrace read_rank_trace(const std::string& path);
[[nodiscard]] MergedTrace merge_traces(std::vector<RankTrace> traces);

}  // namespace tensorwire::cli
