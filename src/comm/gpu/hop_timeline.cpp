#include "comm/gpu/hop_timeline.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <limits>

#include "base/clock.hpp"
#include "base/json_text.hpp"
#include "comm/observe/trace_lines.hpp"

namespace tensorwire::comm {

namespace {

constexpr int kKernel = 11, kAcross = 12, kProxy = 13;

std::int64_t apart(std::uint64_t later, std::uint64_t earlier) noexcept {
  return static_cast<std::int64_t>(later - earlier);
}

/// The events of one rail as lines.
class HopLines : public TraceLines {
 public:
  HopLines(const Identity& who, std::uint32_t rail, const ClockOffset& offset) : TraceLines(who), offset_(offset) {
    metadata("thread_name", kKernel, fmt::format("GPU: kernels of rail {}", rail));
    metadata("thread_name", kAcross, fmt::format("across PCIe, rail {}", rail));
    metadata("thread_name", kProxy, fmt::format("proxy and HCA, rail {}", rail));
  }

  void add(const Hops& hops) {
    slice(hops, kKernel, "fills the window", on_host(hops.begun_ns), on_host(hops.rung_ns));
    slice(hops, kAcross, "doorbell", on_host(hops.rung_ns), hops.seen_ns);
    slice(hops, kProxy, "signatures and windows as packets", hops.seen_ns, hops.carried_ns);
    slice(hops, kAcross, "release word", hops.carried_ns, on_host(hops.released_ns));
    slice(hops, kKernel, "takes the results", on_host(hops.released_ns), on_host(hops.taken_ns));
  }

 private:
  [[nodiscard]] std::uint64_t on_host(std::uint64_t gpu_ns) const noexcept {
    return gpu_ns + static_cast<std::uint64_t>(offset_.ns);
  }
  /// What took less than the clocks are known to may seem to end before it begins.
  void slice(const Hops& hops, int track, std::string_view name, std::uint64_t begun, std::uint64_t ended) {
    line(fmt::format(R"("ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"cat":"hop","name":"{}",)"
                     R"("args":{{"round":{},"bytes":{}}})",
                     who_.rank, track, static_cast<double>(begun) / 1e3,
                     static_cast<double>(std::max<std::int64_t>(apart(ended, begun), 0)) / 1e3, name, hops.number,
                     hops.bytes));
  }

  ClockOffset offset_;
};

double realtime_of_origin_us() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3 -
         static_cast<double>(monotonic_now()) / static_cast<double>(kMicrosecond);
}

}  // namespace

std::optional<ClockOffset> clock_offset(std::span<const Hops> rounds) {
  if (rounds.empty()) return std::nullopt;
  std::int64_t least = std::numeric_limits<std::int64_t>::min();
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const Hops& round : rounds) {
    least = std::max(least, apart(round.carried_ns, round.released_ns));
    most = std::min(most, apart(round.seen_ns, round.rung_ns));
  }
  if (least > most) return std::nullopt;
  return ClockOffset{least + (most - least) / 2, static_cast<std::uint64_t>((most - least + 1) / 2)};
}

std::string timeline_json(const Identity& who, std::uint32_t rail, std::span<const Hops> rounds,
                          const ClockOffset& offset) {
  HopLines lines{who, rail, offset};
  for (const Hops& hops : rounds) lines.add(hops);
  return fmt::format(
             R"({{"displayTimeUnit":"ns","otherData":{{"producer":"tensorwire","version":1,"rank":{},"ranks":{},)"
             R"("communicator":{},"host":{},"process":{},"clock_realtime_us":{:.3f},"events_dropped":0,)"
             R"("rail":{},"gpu_clock_offset_ns":{},"gpu_clock_within_ns":{}}},"traceEvents":[)",
             who.rank, who.ranks, who.communicator, json_quoted(who.host), getpid(), realtime_of_origin_us(), rail,
             offset.ns, offset.within_ns) +
         "\n" + std::move(lines).take() + "\n]}\n";
}

}  // namespace tensorwire::comm
