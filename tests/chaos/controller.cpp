#include "chaos/controller.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "chaos/messages.hpp"

namespace tensorwire::chaos {

namespace {

constexpr Ps kRoundBound = 30 * kSecond;
constexpr int kIdBoundMs = 10'000;
constexpr int kLookEveryMs = 2;

std::size_t index(int rank) noexcept { return static_cast<std::size_t>(rank); }

/// "rank 2 ", and not "rank 21".
bool names(const std::string& line, int rank) {
  const std::string name = fmt::format("rank {}", rank);
  for (std::size_t at = line.find(name); at != std::string::npos; at = line.find(name, at + 1)) {
    if (at + name.size() == line.size() || std::isdigit(line[at + name.size()]) == 0) return true;
  }
  return false;
}

/// Where the threads of a process sleep, as far as the kernel tells.
std::string threads_of(pid_t pid) {
  std::string text;
  std::error_code none;
  for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), none)) {
    std::string name, place;
    std::getline(std::ifstream{thread.path() / "comm"}, name);
    std::getline(std::ifstream{thread.path() / "wchan"}, place);
    text += fmt::format(" {}:{}", name, place);
  }
  return text;
}

}  // namespace

Controller::Controller(int log) {
  for (int i = 0; i < kRanks; ++i) processes_.push_back(std::make_unique<Process>(log));
}

Process& Controller::process(const Scenario& scenario, int rank) const {
  return *processes_[index(scenario.process_of[index(rank)])];
}

Controller::Verdict Controller::play(std::uint64_t seed, std::uint64_t round) {
  const Scenario scenario = chaos::scenario(seed, round);
  const Ps start = monotonic_now();
  Verdict verdict;
  try {
    begin(seed, round, scenario);
    while (!is_over(scenario)) {
      if (monotonic_now() - start > kRoundBound) throw Error{"it hangs", where_they_are(scenario)};
      hear_all(scenario);
      wake_those_due(scenario);
    }
    for (int rank = 0; rank < kRanks && verdict.problem.empty(); ++rank) verdict.problem = judge(scenario, rank);
  } catch (const std::exception& error) {
    verdict.problem = error.what();
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    const State& state = states_[index(rank)];
    if (!state.line.empty()) verdict.lines.push_back(fmt::format("rank {}: {}", rank, state.line));
    if (!state.wrong.empty()) verdict.lines.push_back(fmt::format("rank {} found wrong: {}", rank, state.wrong));
  }
  verdict.took = monotonic_now() - start;
  if (!verdict.problem.empty()) {
    for (const auto& process : processes_) process->end();
  }
  return verdict;
}

std::string Controller::finish() {
  std::string problems;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (const std::string why = processes_[i]->finish(); !why.empty())
      problems += fmt::format("process {}: {}; ", i, why);
  }
  return problems;
}

void Controller::begin(std::uint64_t seed, std::uint64_t round, const Scenario& scenario) {
  states_ = {};
  for (const auto& process : processes_) process->start();
  const Process& first = process(scenario, 0);
  tell(first.socket(), "id");
  const std::string id = hear(first.socket(), kIdBoundMs).value_or("");
  if (!id.starts_with("id ")) throw Error{"rank 0 made no id", id};
  for (int rank = 0; rank < kRanks; ++rank) {
    tell(process(scenario, rank).socket(), fmt::format("play {} {} {} {}", seed, round, rank, id.substr(3)));
  }
}

void Controller::hear_all(const Scenario& scenario) {
  std::array<pollfd, kRanks> sockets{};
  for (int rank = 0; rank < kRanks; ++rank) sockets[index(rank)] = {process(scenario, rank).socket(), POLLIN, 0};
  ::poll(sockets.data(), sockets.size(), kLookEveryMs);
  for (int rank = 0; rank < kRanks; ++rank) {
    if ((sockets[index(rank)].revents & POLLIN) != 0) {
      const auto message = hear(sockets[index(rank)].fd, 0);
      if (message) take(states_[index(rank)], *message);
    }
    process(scenario, rank).look();
  }
}

void Controller::take(State& state, const std::string& message) {
  state.last = message;
  const std::size_t space = message.find(' ');
  const std::string word = message.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : message.substr(space + 1);
  if (word == "trouble") state.in_trouble = true;
  if (word == "lost" || word == "alone") state.line = rest;
  if (word == "shrunk") state.shrunk = true;
  if (word == "wrong") state.wrong = rest;
  if (word == "done") state.usage = usage_of(rest);
  state.done = word == "done" || word == "wrong";
}

/// Who paused goes on after its time, who stopped when the survivors have a communicator of their own.
void Controller::wake_those_due(const Scenario& scenario) {
  for (const int rank : scenario.guilty) {
    Process& guilty = process(scenario, rank);
    State& state = states_[index(rank)];
    if (!guilty.is_stopped()) {
      state.stopped_since = 0;
      continue;
    }
    const Ps now = monotonic_now();
    if (state.stopped_since == 0) state.stopped_since = now;
    const auto survivors = scenario.survivors();
    const bool due = scenario.trouble == Trouble::kPause
                         ? now - state.stopped_since >= scenario.pause_ms * kMillisecond
                         : std::ranges::all_of(survivors, [&](int other) {
                             return states_[index(other)].shrunk || states_[index(other)].done;
                           });
    if (due) guilty.resume();
  }
}

bool Controller::is_over(const Scenario& scenario) const {
  for (int rank = 0; rank < kRanks; ++rank) {
    if (!states_[index(rank)].done && process(scenario, rank).runs()) return false;
  }
  return true;
}

std::string Controller::judge(const Scenario& scenario, int rank) {
  const State& state = states_[index(rank)];
  Process& ended = process(scenario, rank);
  const bool guilty = scenario.is_guilty(rank);
  // Of two, the second may learn of the first one's death before its own turn has come: then it lives.
  // (One that has died may have done so before its last message was read.)
  const bool spared =
      guilty && scenario.trouble == Trouble::kKill && scenario.guilty.size() == 2 && !state.in_trouble && ended.runs();
  if (guilty && scenario.trouble == Trouble::kKill && !spared) {
    return ended.died_of() == SIGKILL ? "" : fmt::format("rank {} was not killed; it said: {}", rank, state.last);
  }
  if (!state.wrong.empty()) return fmt::format("rank {}: {}", rank, state.wrong);
  if (!ended.runs()) return fmt::format("rank {} died of signal {} after: {}", rank, ended.died_of(), state.last);
  // The others, who may be ahead of it, forsake a rank that has yet to come to its turn, too.
  const bool overtaken = guilty && scenario.trouble == Trouble::kForsake;
  if (guilty && !spared && !overtaken && !state.in_trouble) return fmt::format("rank {} caused no trouble", rank);
  if (scenario.is_fatal()) {
    if (state.line.empty()) return fmt::format("rank {} was told nothing", rank);
    if (state.line.find('\n') != std::string::npos) return fmt::format("rank {} was told more than a line", rank);
    const bool named = std::ranges::any_of(scenario.guilty, [&](int other) { return names(state.line, other); });
    // Of who is forsaken the others know already.
    if (!guilty && !named && scenario.trouble != Trouble::kForsake)
      return fmt::format("rank {} was told nothing of the guilty: {}", rank, state.line);
    if (!guilty && !state.shrunk) return fmt::format("rank {} did not go on", rank);
  }
  if (scenario.process_of[index(rank)] == 0) history_.push_back(state.usage);
  const std::string leaked = ended.leak(state.usage);
  return leaked.empty() ? "" : fmt::format("rank {} leaks: {}", rank, leaked);
}

std::string Controller::where_they_are(const Scenario& scenario) const {
  std::string text;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Process& there = process(scenario, rank);
    const State& state = states_[index(rank)];
    if (state.done || !there.runs()) continue;
    text += fmt::format("rank {}{} after \"{}\",{}; ", rank, there.is_stopped() ? ", stopped," : "", state.last,
                        threads_of(there.pid()));
  }
  return text;
}

}  // namespace tensorwire::chaos
