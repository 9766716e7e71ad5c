#include "cli/prove/switch_dump.hpp"

#include <fstream>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace tensorwire::cli {
namespace {

constexpr Ps kPoll = 200 * kMillisecond;
constexpr int kMostLooks = 25;
constexpr std::size_t kLongestDump = 16 << 20;

std::string text_of(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  if (!file) throw Error{"--switch " + path, "it cannot be read", "Save the output of `show queue counters` there"};
  std::string text(kLongestDump, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace

SwitchDump::SwitchDump(std::string path) : path_(std::move(path)), text_(text_of(path_)) {
  counters_ = host::parse_switch_counters(text_);
  if (counters_.empty()) {
    throw Error{"--switch " + path_, "it has no table of queues or of PFC frames",
                "What SONiC's `show queue counters` and `show pfc counters` print is understood"};
  }
}

/// Whole is what stays the same for a moment: the one who writes it may be in the middle.
bool SwitchDump::refresh() {
  std::string now = text_of(path_);
  if (now == text_) return false;
  for (int look = 0; look < kMostLooks; ++look) {
    nap(kPoll);
    std::string later = text_of(path_);
    if (later == now) break;
    now = std::move(later);
  }
  auto counters = host::parse_switch_counters(now);
  if (counters.empty()) return false;
  text_ = std::move(now);
  counters_ = std::move(counters);
  return true;
}

bool SwitchDump::wait_for_newer(Ps bound) {
  const Ps end = monotonic_now() + bound;
  do {
    if (refresh()) return true;
    nap(kPoll);
  } while (monotonic_now() < end);
  return false;
}

}  // namespace tensorwire::cli
