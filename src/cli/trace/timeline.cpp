#include "cli/trace/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "base/error.hpp"

namespace tensorwire::cli {

namespace {

using Json = nlohmann::json;

bool is_hop(const Json& event) { return event.value("ph", "") == "X" && event.value("cat", "") == "hop"; }

std::uint64_t round_of(const Json& event) { return event.at("args").at("round").get<std::uint64_t>(); }

/// The hops of one round, in the order of time.
std::vector<Json> hops_of(const Json& trace, std::optional<std::uint64_t> round) {
  std::vector<Json> hops;
  for (const Json& event : trace.at("traceEvents")) {
    if (round && is_hop(event) && round_of(event) == *round) hops.push_back(event);
  }
  std::ranges::sort(hops, {}, [](const Json& hop) { return hop.at("ts").get<double>(); });
  return hops;
}

std::optional<std::uint64_t> last_round(const Json& trace) {
  std::optional<std::uint64_t> last;
  for (const Json& event : trace.at("traceEvents")) {
    if (is_hop(event)) last = std::max(last.value_or(0), round_of(event));
  }
  return last;
}

std::map<int, std::string> track_names(const Json& trace) {
  std::map<int, std::string> names;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.value("ph", "") != "M" || event.value("name", "") != "thread_name") continue;
    names[event.at("tid").get<int>()] = event.at("args").at("name").get<std::string>();
  }
  return names;
}

std::string chart(const Json& trace, const std::vector<Json>& hops) {
  const double begin = hops.front().at("ts").get<double>();
  const double end = hops.back().at("ts").get<double>() + hops.back().at("dur").get<double>();
  const Json& about = trace.at("otherData");
  std::string text = fmt::format(
      "gantt\n  title rank {}, round {} of {} bytes: {:.1f} us (clocks of GPU and host known within {:.1f} us)\n"
      "  dateFormat x\n  axisFormat %L\n",
      about.at("rank").get<int>(), round_of(hops.front()), hops.front().at("args").at("bytes").get<std::uint64_t>(),
      end - begin, static_cast<double>(about.at("gpu_clock_within_ns").get<std::uint64_t>()) / 1e3);
  for (const auto& [track, name] : track_names(trace)) {
    text += fmt::format("  section {}\n", name);
    for (const Json& hop : hops) {
      if (hop.at("tid").get<int>() != track) continue;
      const double at = hop.at("ts").get<double>() - begin;
      text += fmt::format("  {} : {}, {}\n", hop.at("name").get<std::string>(), std::lround(at),
                          std::lround(at + hop.at("dur").get<double>()));
    }
  }
  return text;
}

}  // namespace

std::string draw_timeline(const std::string& path, const Json& trace, std::optional<std::uint64_t> round) {
  const std::string what = fmt::format("draw {}", path);
  try {
    const auto wanted = round ? round : last_round(trace);
    const std::vector<Json> hops = hops_of(trace, wanted);
    if (hops.empty()) {
      throw Error{what, round ? fmt::format("it has no round {}", *round) : "it has no hops of a GPU's proxy",
                  "TENSORWIRE_TRACE makes files with .gpu in their names that have them"};
    }
    return chart(trace, hops);
  } catch (const Json::exception& error) {
    throw Error{what, fmt::format("it is no trace of ours: {}", error.what())};
  }
}

}  // namespace tensorwire::cli
