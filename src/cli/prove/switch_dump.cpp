#include "cli/prove/switch_dump.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace tensorwire::cli {
namespace {

constexpr Ps kDumpPoll = 200 * kMillisecond;
constexpr int kMostDumpPolls = 25;
constexpr std::size_t kLongestDump = 16 << 20;

std::optional<std::string> dump_text(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  if (!file) return std::nullopt;
  std::string text(kLongestDump, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

/// Nanoseconds; nothing where there is no such file.
std::optional<std::int64_t> written_at(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return status.st_mtim.tv_sec * 1'000'000'000LL + status.st_mtim.tv_nsec;
}

}  // namespace

SwitchDump::SwitchDump(std::string path) : path_(std::move(path)), written_at_(written_at(path_)) {
  const auto text = dump_text(path_);
  if (!text) throw system_error("--switch " + path_, errno, "Save the output of `show queue counters` there");
  counters_ = host::parse_switch_counters(*text);
  if (counters_.empty()) {
    throw Error{"--switch " + path_, "it has no table of queues or of PFC frames",
                "What SONiC's `show queue counters` and `show pfc counters` print is understood"};
  }
}

bool SwitchDump::refresh() {
  auto written = written_at(path_);
  if (!written || written == written_at_) return false;
  // The one who writes it may be in the middle: whole is what was left alone for a moment.
  for (int poll = 0; poll < kMostDumpPolls; ++poll) {
    nap(kDumpPoll);
    const auto again = written_at(path_);
    if (again == written) break;
    written = again;
  }
  auto counters = host::parse_switch_counters(dump_text(path_).value_or(""));
  if (counters.empty()) return false;
  written_at_ = written;
  counters_ = std::move(counters);
  return true;
}

/// The first that comes may have been asked for before this call; the second was not.
bool SwitchDump::wait_for_newer(Ps bound) {
  const Ps end = monotonic_now() + bound;
  written_at_ = written_at(path_);
  for (int newer = 0; monotonic_now() < end;) {
    if (refresh() && ++newer == 2) return true;
    nap(kDumpPoll);
  }
  return false;
}

}  // namespace tensorwire::cli
