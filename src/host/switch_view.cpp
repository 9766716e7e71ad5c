#include "host/switch_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "host/class_proof.hpp"

namespace tensorwire::host {
namespace {

constexpr std::size_t kMostQueues = 8;

std::uint64_t difference(std::uint64_t before, std::uint64_t after) { return after >= before ? after - before : after; }

PfcFrames moved(const PfcFrames& before, PfcFrames after) {
  for (auto& [port, row] : after) {
    const auto was = before.find(port);
    if (was == before.end()) continue;
    for (unsigned p = 0; p < kPriorities; ++p) row[p] = difference(was->second[p], row[p]);
  }
  return after;
}

using Row = std::pair<const std::pair<std::string, std::string>, SwitchQueue>;

std::vector<const Row*> busiest(const SwitchCounters& counters, std::optional<std::uint64_t> burst) {
  std::vector<const Row*> rows;
  for (const Row& row : counters.queues) {
    const auto bytes = static_cast<double>(row.second.bytes);
    const bool fits =
        !burst || std::abs(bytes - static_cast<double>(*burst)) <= kProofTolerance * static_cast<double>(*burst);
    if (row.second.bytes != 0 && fits) rows.push_back(&row);
  }
  std::ranges::stable_sort(rows, [](const Row* a, const Row* b) { return a->second.bytes > b->second.bytes; });
  if (rows.size() > kMostQueues) rows.resize(kMostQueues);
  return rows;
}

void add_pauses(const PfcFrames& frames, const char* what, std::vector<std::string>& lines) {
  for (const auto& [port, row] : frames) {
    for (unsigned p = 0; p < kPriorities; ++p) {
      if (row[p] != 0) lines.push_back(fmt::format("switch port {} {} {} times in priority {}", port, what, row[p], p));
    }
  }
}

}  // namespace

SwitchCounters moved(const SwitchCounters& before, const SwitchCounters& after) {
  SwitchCounters delta = after;
  for (auto& [key, queue] : delta.queues) {
    const auto was = before.queues.find(key);
    if (was == before.queues.end()) continue;
    queue = {difference(was->second.packets, queue.packets), difference(was->second.bytes, queue.bytes),
             difference(was->second.dropped, queue.dropped)};
  }
  delta.pfc_received = moved(before.pfc_received, delta.pfc_received);
  delta.pfc_sent = moved(before.pfc_sent, delta.pfc_sent);
  return delta;
}

std::vector<std::string> switch_lines(const SwitchCounters& counters, std::optional<std::uint64_t> burst) {
  std::vector<std::string> lines;
  for (const Row* row : busiest(counters, burst)) {
    lines.push_back(fmt::format("switch queue: {} of {} carried {:.1f} MB", row->first.second, row->first.first,
                                static_cast<double>(row->second.bytes) / 1e6));
  }
  if (counters.queues.empty()) {
    lines.emplace_back("switch queue: unknown (the dump has no table of queues)");
  } else if (lines.empty()) {
    lines.push_back("switch queue: none of those in the dump carried " +
                    (burst ? fmt::format("{:.1f} MB", static_cast<double>(*burst) / 1e6) : "anything"));
  }
  for (const auto& [key, queue] : counters.queues) {
    if (queue.dropped != 0) {
      lines.push_back(fmt::format("switch port {} dropped {} packets in {}", key.first, queue.dropped, key.second));
    }
  }
  add_pauses(counters.pfc_sent, "paused its neighbour", lines);
  add_pauses(counters.pfc_received, "was paused by its neighbour", lines);
  return lines;
}

}  // namespace tensorwire::host
