#include "cli/sim/play.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "cli/interrupt.hpp"
#include "fabric/port_capture.hpp"
#include "fabric/simulation.hpp"

namespace tensorwire::cli {

namespace {

constexpr Ps kSimRedrawInterval = 200 * kMillisecond;
constexpr Ps kSlice = 50 * kMicrosecond;

/// One line on a terminal: how far it is, in simulated time, and how fast.
class Line {
 public:
  Line(Ps limit, bool wanted) : limit_(limit), enabled_(wanted && isatty(STDERR_FILENO) == 1) {}
  ~Line() {
    if (enabled_) std::fputs("\r\033[K", stderr);
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  void draw(fabric::Simulation& simulation) {
    if (!enabled_) return;
    const Ps now = monotonic_now();
    if (now - drawn_ < kSimRedrawInterval) return;
    const std::uint64_t events = simulation.fabric().events();
    const double speed = static_cast<double>(events - events_) / static_cast<double>(now - drawn_) * kSecond / 1e6;
    drawn_ = now;
    events_ = events;
    const auto [done, all] = simulation.progress();
    // What has an end counts by operations, what has none by time.
    const double part = all != 0 ? static_cast<double>(done) / static_cast<double>(all)
                                 : static_cast<double>(simulation.now()) / static_cast<double>(limit_);
    constexpr double kWidth = 32;
    const auto filled = static_cast<std::size_t>(kWidth * std::min(part, 1.0));
    const std::string text =
        fmt::format("\r\033[K[{:#<{}}{:.<{}}] {:3.0f}%  {} simulated, {:.1f} M events/s", "", filled, "",
                    static_cast<std::size_t>(kWidth) - filled, 100 * part, format_duration(simulation.now()), speed);
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
  }

 private:
  Ps limit_;
  bool enabled_;
  Ps drawn_ = 0;
  std::uint64_t events_ = 0;
};

/// What passes a port, in a file.
class Capture {
 public:
  /// @param what  "leaf 3 port 7" for a file leaf_3_port_7.pcap, or "leaf 3 port 7=file". @throws Error
  Capture(const std::string& what, fabric::Fabric& fabric) : port_(what.substr(0, what.find('='))) {
    const fabric::PortId port = fabric.port_named(port_);
    file_ = port_.size() == what.size() ? port_ + ".pcap" : what.substr(port_.size() + 1);
    if (port_.size() == what.size()) std::ranges::replace(file_, ' ', '_');
    packets_ = std::make_unique<fabric::PortCapture>(file_);
    fabric.capture(port, *packets_);
  }
  /// @throws Error
  [[nodiscard]] std::string finish() {
    packets_->finish();
    constexpr std::uint64_t kMost = fabric::PortCapture::kMostPackets;
    const std::uint64_t passed = packets_->packets();
    const std::string some = passed > kMost ? fmt::format("the first {} of ", kMost) : "";
    return fmt::format("{}{} packets that passed {} are in {}", some, passed, port_, file_);
  }

 private:
  std::string port_, file_;
  std::unique_ptr<fabric::PortCapture> packets_;
};

}  // namespace

Played play(const fabric::Scenario& scenario, const PlayOptions& options) {
  const Ps started = monotonic_now();
  fabric::Simulation simulation{scenario};
  std::optional<Capture> capture;
  if (!options.capture.empty()) capture.emplace(options.capture, simulation.fabric());
  Played played;
  {
    Line shown{scenario.limit, options.line};
    while (interrupt_flag() == 0 && simulation.run(kSlice)) shown.draw(simulation);
  }
  played.run.interrupted = interrupt_flag() != 0;
  played.run.wall_s = static_cast<double>(monotonic_now() - started) / kSecond;
  played.report = simulation.report();
  if (capture) played.run.capture = capture->finish();
  return played;
}

}  // namespace tensorwire::cli
