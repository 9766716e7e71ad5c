#include "cli/trace/merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"

namespace tensorwire::cli {

namespace {

using Json = nlohmann::json;

constexpr double kUnknown = std::numeric_limits<double>::infinity();

/// When each end of a message saw it, on its own clock.
struct Message {
  std::size_t from = 0, to = 0;  ///< indices of files
  double sent = kUnknown, arrived = kUnknown;
};

/// The least that any message from one file's rank to another's took, clock difference included: [from][to].
using FastestTable = std::vector<std::vector<double>>;

FastestTable fastest_messages(const std::vector<RankTrace>& traces, std::uint64_t& matched) {
  std::unordered_map<std::string, Message> messages;
  for (std::size_t file = 0; file < traces.size(); ++file) {
    for (const Json& event : traces[file].content["traceEvents"]) {
      const std::string phase = event.value("ph", "");
      if ((phase != "s" && phase != "f") || !event.contains("id") || !event["id"].is_string()) continue;
      Message& message = messages[event["id"].get<std::string>()];
      const double at = event.value("ts", 0.0);
      if (phase == "s") {
        message.from = file;
        message.sent = at;
      } else {
        message.to = file;
        message.arrived = at;
      }
    }
  }
  FastestTable fastest(traces.size(), std::vector<double>(traces.size(), kUnknown));
  for (const auto& [id, message] : messages) {
    if (message.sent == kUnknown || message.arrived == kUnknown || message.from == message.to) continue;
    ++matched;
    double& least = fastest[message.from][message.to];
    least = std::min(least, message.arrived - message.sent);
  }
  return fastest;
}

/// From the first file on, always along the pair whose clocks are known best (Prim's tree).
void align_by_messages(const FastestTable& fastest, std::size_t first, std::vector<ClockAlignment>& clocks,
                       std::vector<bool>& known) {
  known[first] = true;
  for (;;) {
    double best = kUnknown;
    std::size_t from = 0, to = 0;
    for (std::size_t a = 0; a < clocks.size(); ++a) {
      for (std::size_t b = 0; known[a] && b < clocks.size(); ++b) {
        if (known[b] || fastest[a][b] == kUnknown || fastest[b][a] == kUnknown) continue;
        const double within = clocks[a].within_us + (fastest[a][b] + fastest[b][a]) / 2;
        if (within >= best) continue;
        best = within;
        from = a;
        to = b;
      }
    }
    if (best == kUnknown) return;
    // A message there takes d + c and one back d' - c, where b's clock is c ahead of a's: with d = d', c is half their
    // difference, and it is wrong by half their sum at most.
    clocks[to].offset_us = clocks[from].offset_us - (fastest[from][to] - fastest[to][from]) / 2;
    clocks[to].within_us = best;
    clocks[to].by_messages = clocks[from].by_messages;
    known[to] = true;
  }
}

double realtime_origin(const RankTrace& trace) { return trace.content["otherData"].value("clock_realtime_us", 0.0); }

std::vector<ClockAlignment> align(const std::vector<RankTrace>& traces, const FastestTable& fastest) {
  std::vector<ClockAlignment> clocks;
  for (const RankTrace& trace : traces) {
    const Json& other = trace.content["otherData"];
    clocks.push_back({trace.path, other.value("rank", 0U), other.value("communicator", 0U)});
  }
  std::vector<bool> known(traces.size(), false);
  for (std::size_t file = 0; file < traces.size(); ++file) {
    if (known[file]) continue;
    // No way by messages from the ranks before: the system's clock must do, and for those who hang on it too.
    clocks[file].offset_us = realtime_origin(traces[file]) - realtime_origin(traces[0]);
    clocks[file].by_messages = file == 0;
    align_by_messages(fastest, file, clocks, known);
  }
  return clocks;
}

void refuse_twins(const std::vector<RankTrace>& traces) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> seen;
  for (const RankTrace& trace : traces) {
    const Json& other = trace.content["otherData"];
    const auto [twin, is_new] =
        seen.try_emplace({other.value("communicator", 0U), other.value("rank", 0U)}, trace.path);
    if (is_new) continue;
    throw Error{"merge " + trace.path, fmt::format("it is of the same rank and communicator as {}", twin->second),
                "Give one file of each rank, all of one job"};
  }
}

}  // namespace

RankTrace read_rank_trace(const std::string& path) {
  std::ifstream file{path};
  if (!file) throw Error{"read " + path, "it cannot be opened"};
  RankTrace trace{path, Json::parse(file, nullptr, false)};
  const Json& content = trace.content;
  const bool sound = content.is_object() && content.contains("otherData") && content["otherData"].is_object() &&
                     content["otherData"].value("producer", Json{}) == "tensorwire" &&
                     content["otherData"].value("rank", Json{}).is_number_unsigned() &&
                     content["otherData"].value("communicator", Json{}).is_number_unsigned() &&
                     content["otherData"].value("clock_realtime_us", Json{}).is_number() &&
                     content.contains("traceEvents") && content["traceEvents"].is_array();
  if (!sound) throw Error{"read " + path, "it is not a trace of a rank", "Give files that TENSORWIRE_TRACE named"};
  for (const Json& event : content["traceEvents"]) {
    if (!event.is_object() || (event.contains("ts") && !event["ts"].is_number()) ||
        (event.contains("ph") && !event["ph"].is_string())) {
      throw Error{"read " + path, "it holds an event that is none"};
    }
  }
  return trace;
}

MergedTrace merge_traces(std::vector<RankTrace> traces) {
  refuse_twins(traces);
  MergedTrace merged;
  merged.clocks = align(traces, fastest_messages(traces, merged.messages));
  Json events = Json::array();
  for (std::size_t file = 0; file < traces.size(); ++file) {
    const ClockAlignment& clock = merged.clocks[file];
    for (Json& event : traces[file].content["traceEvents"]) {
      if (event.contains("ts")) event["ts"] = event["ts"].get<double>() + clock.offset_us;
      // A rank's communicators are processes of their own in the picture.
      event["pid"] = clock.communicator * 100'000 + clock.rank;
      events.push_back(std::move(event));
    }
  }
  merged.content = {{"displayTimeUnit", "ns"},
                    {"otherData", {{"producer", "tensorwire"}, {"version", 1}, {"merged", traces.size()}}},
                    {"traceEvents", std::move(events)}};
  return merged;
}

}  // namespace tensorwire::cli
