#include "cli/bench/progress_bar.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/clock.hpp"

namespace tensorwire::cli {

namespace {

constexpr std::uint64_t kBarWidth = 32;
constexpr Ps kRedrawInterval = 100 * kMillisecond;

double seconds(Ps time) { return static_cast<double>(time) / static_cast<double>(kSecond); }

}  // namespace

ProgressBar::ProgressBar(std::string label, std::uint64_t total, bool enabled)
    : label_(std::move(label)),
      total_(std::max<std::uint64_t>(total, 1)),
      enabled_(enabled && isatty(STDERR_FILENO) == 1),
      started_(monotonic_now()) {}

ProgressBar::~ProgressBar() {
  if (enabled_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::advance(std::uint64_t steps) {
  done_ = std::min(done_ + steps, total_);
  if (!enabled_) return;
  const Ps now = monotonic_now();
  if (now - last_drawn_ >= kRedrawInterval || done_ == total_) draw(now);
}

void ProgressBar::draw(Ps now) {
  last_drawn_ = now;
  const std::uint64_t filled = done_ * kBarWidth / total_;
  const double elapsed = seconds(now - started_);
  const double left = done_ == 0 ? 0 : elapsed * static_cast<double>(total_ - done_) / static_cast<double>(done_);
  const std::string line = fmt::format("\r\033[K{} [{:#<{}}{:.<{}}] {:3}%  {:.0f} s left", label_, "", filled, "",
                                       kBarWidth - filled, done_ * 100 / total_, left);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace tensorwire::cli
