// Chaos: four ranks, each a process, work through the C API over the user-space HCA, on the same-host link and in
// packets. In each round something happens, or nothing: a rank is slow, is stopped and resumed, is killed, aborts, is
// forsaken, makes another call than the others; packets are lost. No result may be wrong, nothing may hang, the
// survivors are told in one line who is to blame and go on without it, and nothing leaks. `chaos --rounds N [--seed S]
// [--from R] --logs FOLDER`
//
// A round is a pure function of seed and number: --from 17 --rounds 1 plays round 17 of that seed again.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "chaos/controller.hpp"
#include "chaos/rank.hpp"

namespace tensorwire::chaos {
namespace {

constexpr int kMostProblems = 5;
/// Memory settles in the first rounds; leaks are looked for from then on. What is allocated once, at the first trouble
/// of a kind, was 3 KiB at most.
constexpr std::size_t kSettled = 12, kLast = 8;
constexpr std::uint64_t kHeapSlack = 8 << 10;
/// Sanitizers keep what was freed for a while; they look for leaks themselves when a process ends.
constexpr std::uint64_t kResidentSlack = (TENSORWIRE_TIMEOUT_FACTOR > 1 ? 400 : 4) << 20;

struct Settings {
  std::uint64_t rounds = 40;
  std::uint64_t seed = 0;  ///< 0: by the system's random numbers
  std::uint64_t from = 0;
  std::string logs = ".";
};

Settings settings_of(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--rounds") {
      settings.rounds = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (name == "--seed") {
      settings.seed = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (name == "--from") {
      settings.from = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (name == "--logs") {
      settings.logs = argv[i + 1];
    } else {
      throw Error{"chaos", "unknown argument " + name, "Use --rounds, --seed, --from, --logs"};
    }
  }
  if (settings.seed == 0) settings.seed = entropy64() % 1'000'000'000;
  return settings;
}

/// Lines go to the log and, where they matter, to the terminal as well.
class Log {
 public:
  explicit Log(const Settings& settings) {
    std::filesystem::create_directories(settings.logs);
    path_ = fmt::format("{}/chaos-{}-rounds-seed-{}.log", settings.logs, settings.rounds, settings.seed);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (fd_ < 0) throw system_error("write " + path_, errno);
  }
  ~Log() { ::close(fd_); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void write(const std::string& line) const { ::dprintf(fd_, "%s\n", line.c_str()); }
  void say(const std::string& line) const {
    write(line);
    std::puts(line.c_str());
    std::fflush(stdout);
  }
  [[nodiscard]] int descriptor() const noexcept { return fd_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
};

/// The lowest of the last rounds against the highest of those in which it had settled: what keeps growing is a leak.
std::string growth(const std::vector<Usage>& history) {
  if (history.size() < kSettled + kLast) return "";
  const auto settled = std::span{history}.subspan(kSettled / 2, kSettled / 2);
  const auto last = std::span{history}.last(kLast);
  const auto grown = [&](auto member) {
    const std::uint64_t before = (*std::ranges::max_element(settled, {}, member)).*member;
    const std::uint64_t now = (*std::ranges::min_element(last, {}, member)).*member;
    return now > before ? now - before : 0;
  };
  const std::uint64_t heap = grown(&Usage::heap), resident = grown(&Usage::resident);
  if (heap <= kHeapSlack && resident <= kResidentSlack) return "";
  return fmt::format("process 0 leaks: {} bytes more on the heap, {} more resident", heap, resident);
}

int run(const Settings& settings) {
  const Log log{settings};
  log.say(fmt::format("chaos: {} rounds of seed {}, log {}", settings.rounds, settings.seed, log.path()));
  Controller controller{log.descriptor()};
  const Ps start = monotonic_now();
  Ps longest = 0;
  int problems = 0;
  for (std::uint64_t round = settings.from; round < settings.from + settings.rounds && problems < kMostProblems;
       ++round) {
    log.write(fmt::format("round {}: {}", round, to_string(scenario(settings.seed, round))));
    const Controller::Verdict verdict = controller.play(settings.seed, round);
    longest = std::max(longest, verdict.took);
    for (const std::string& line : verdict.lines) log.write("  " + line);
    log.write(fmt::format("  {} ms", verdict.took / kMillisecond));
    if (verdict.problem.empty()) continue;
    ++problems;
    log.say(
        fmt::format("round {} failed: {}\n  {}", round, verdict.problem, to_string(scenario(settings.seed, round))));
    log.say(fmt::format("  again: {} --seed {} --from {} --rounds 1", "chaos", settings.seed, round));
  }
  for (const Usage& usage : controller.history()) log.write("process 0 held: " + to_text(usage));
  if (const std::string leak = growth(controller.history()); !leak.empty()) {
    ++problems;
    log.say(leak);
  }
  if (const std::string problem = controller.finish(); !problem.empty()) {
    ++problems;
    log.say(problem);
  }
  log.say(fmt::format("chaos: {} in {} s, the longest round {} ms, seed {}", problems == 0 ? "passed" : "FAILED",
                      (monotonic_now() - start) / kSecond, longest / kMillisecond, settings.seed));
  return problems == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tensorwire::chaos

int main(int argc, char** argv) {
  using namespace tensorwire::chaos;
  try {
    if (argc == 2 && std::string{argv[1]} == "--rank") return serve(STDIN_FILENO);
    return run(settings_of(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
