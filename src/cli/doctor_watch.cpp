#include "cli/doctor_watch.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "cli/doctor_status.hpp"
#include "cli/prove/prove.hpp"
#include "cli/prove/switch_dump.hpp"
#include "host/activity.hpp"
#include "host/read/read.hpp"
#include "host/switch_view.hpp"
#include "host/tree/live_tree.hpp"

namespace tensorwire::cli {
namespace {

using Json = nlohmann::json;
using Count = std::optional<std::uint64_t>;

constexpr Ps kShortest = 100 * kMillisecond;
constexpr Ps kLongestNap = 500 * kMillisecond;
constexpr std::string_view kClear = "\033[H\033[J";

struct WatchFlags {
  std::string interval = "2s";
  std::uint32_t count = 0;
  bool json = false;
  bool prove = false;
  std::string switch_file;
  ProveFlags burst;
};

std::string rate(Count bytes, double seconds) {
  return bytes ? fmt::format("{:.3f}", static_cast<double>(*bytes) / seconds / 1e9) : "-";
}

std::string number(Count count) { return count ? fmt::to_string(*count) : "-"; }

std::string table_of(const host::PortActivity& port, double seconds) {
  std::string text = fmt::format("{}/{} {}   RDMA GB/s: sent {}, received {}\n", port.device, port.port, port.netdev,
                                 rate(port.rdma_sent_bytes, seconds), rate(port.rdma_received_bytes, seconds));
  text += fmt::format("  {:<10}{:>12}{:>12}{:>14}{:>14}{:>12}{:>10}\n", "priority", "sent GB/s", "recv GB/s",
                      "pauses sent", "pauses recv", "paused us", "discards");
  for (unsigned p = 0; p < host::kPriorities; ++p) {
    const host::PriorityActivity& priority = port.priorities[p];
    if (!priority.any()) continue;
    text += fmt::format("  {:<10}{:>12}{:>12}{:>14}{:>14}{:>12}{:>10}\n", p, rate(priority.sent_bytes, seconds),
                        rate(priority.received_bytes, seconds), number(priority.pauses_sent),
                        number(priority.pauses_received), number(priority.paused_us), number(priority.discards));
  }
  for (const auto& [name, count] : port.events) text += fmt::format("  {} +{}\n", name, count);
  for (const std::string& verdict : port.verdicts) text += fmt::format("  -> {}\n", verdict);
  return text;
}

Json or_null(Count count) { return count ? Json(*count) : Json(nullptr); }

Json json_of(const host::PortActivity& port) {
  Json priorities = Json::array();
  for (const host::PriorityActivity& p : port.priorities) {
    priorities.push_back({{"sent_bytes", or_null(p.sent_bytes)},
                          {"received_bytes", or_null(p.received_bytes)},
                          {"pauses_sent", or_null(p.pauses_sent)},
                          {"pauses_received", or_null(p.pauses_received)},
                          {"paused_us", or_null(p.paused_us)},
                          {"discards", or_null(p.discards)}});
  }
  Json events = Json::object();
  for (const auto& [name, count] : port.events) events[name] = count;
  return {{"device", port.device},
          {"port", port.port},
          {"interface", port.netdev},
          {"rdma_sent_bytes", or_null(port.rdma_sent_bytes)},
          {"rdma_received_bytes", or_null(port.rdma_received_bytes)},
          {"priorities", std::move(priorities)},
          {"events", std::move(events)},
          {"verdicts", port.verdicts}};
}

/// What the switch says of itself between two looks at its dump, where there is one.
class SwitchLooks {
 public:
  explicit SwitchLooks(const std::string& file) {
    if (!file.empty()) dump_.emplace(file);
  }
  [[nodiscard]] std::vector<std::string> lines() {
    if (!dump_) return {"switch queue: unknown (no host sees it; --switch FILE imports what the switch prints)"};
    const host::SwitchCounters before = dump_->counters();
    if (dump_->refresh()) return host::switch_lines(host::moved(before, dump_->counters()), std::nullopt);
    if (!first_) return {"switch queue: unknown (no newer dump since the last look)"};
    first_ = false;
    auto all = host::switch_lines(before, std::nullopt);
    all.emplace_back("(of the switch: since its counters were cleared)");
    return all;
  }

 private:
  std::optional<SwitchDump> dump_;
  bool first_ = true;
};

void show(const std::vector<host::PortActivity>& ports, Ps elapsed, const std::vector<std::string>& of_switch,
          bool as_json) {
  const double seconds = static_cast<double>(elapsed) / static_cast<double>(kSecond);
  if (as_json) {
    Json all = Json::array();
    for (const host::PortActivity& port : ports) all.push_back(json_of(port));
    fmt::print("{}\n", Json{{"seconds", seconds}, {"ports", std::move(all)}, {"switch", of_switch}}.dump());
  } else {
    if (::isatty(STDOUT_FILENO) == 1) fmt::print("{}", kClear);
    for (const host::PortActivity& port : ports) fmt::print("{}", table_of(port, seconds));
    for (const std::string& line : of_switch) fmt::print("{}\n", line);
    fmt::print("{:.1f} s\n", seconds);
  }
  std::fflush(stdout);
}

void sleep_until(Ps when) {
  for (Ps now = monotonic_now(); now < when; now = monotonic_now()) nap(std::min(when - now, kLongestNap));
}

int watch(const WatchFlags& flags) {
  const Ps interval = parse_duration(flags.interval);
  if (interval < kShortest)
    throw Error{"--interval " + flags.interval, "counters need at least 100ms between two looks"};
  if (flags.prove) return prove(flags.burst, interval, flags.switch_file, flags.json);
  SwitchLooks of_switch{flags.switch_file};
  host::LiveTree tree;
  host::Host before = host::read_host(tree);
  if (before.rdma.value_or({}).empty())
    throw Error{"watch", "this host has no RDMA device", "tensorwire doctor says more"};
  Ps then = monotonic_now();
  for (std::uint32_t round = 0; flags.count == 0 || round < flags.count; ++round) {
    sleep_until(then + interval);
    host::Host after = host::read_host(tree);
    const Ps now = monotonic_now();
    show(host::activity_between(before, after, now - then), now - then, of_switch.lines(), flags.json);
    before = std::move(after);
    then = now;
  }
  return 0;
}

}  // namespace

void add_doctor_watch(Command& doctor, int& status, bool& done) {
  Command command =
      doctor.command("watch", "which priority the data rides in, who pauses whom, what is marked and lost");
  auto flags = std::make_shared<WatchFlags>();
  command.option("--interval", flags->interval, "time between two looks").shows_default();
  command.option("--count", flags->count, "how many looks (default: until it is interrupted)");
  command.flag("--json", flags->json, "a line of JSON for each look");
  command.option("--switch", flags->switch_file, "a file with what the switch prints about its queues and PFC frames");
  command.flag("--prove", flags->prove,
               "send a burst between two hosts and prove from both ends' counters where it rides");
  flags->burst.add_to(command);
  command.runs([flags, &status, &done] {
    done = true;
    status = verdict_of([&] { return watch(*flags); });
  });
}

}  // namespace tensorwire::cli
