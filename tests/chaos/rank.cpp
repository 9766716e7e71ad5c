#include "chaos/rank.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "chaos/messages.hpp"
#include "chaos/scenario.hpp"
#include "chaos/usage.hpp"
#include "chaos/work.hpp"

namespace tensorwire::chaos {

namespace {

constexpr Ps kFailsWithin = 20 * kSecond;  ///< what must end a communicator has done so by then
constexpr std::uint64_t kAfterwards = 0x5eed;

std::string to_hex(const twUniqueId& id) {
  std::string hex;
  for (const char byte : id.internal) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

twUniqueId from_hex(const std::string& hex) {
  twUniqueId id{};
  if (hex.size() != 2 * sizeof id.internal) throw Error{"read an id", "it is too short"};
  for (std::size_t i = 0; i < sizeof id.internal; ++i) {
    id.internal[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

void must(twResult_t result, const char* call, twComm_t comm = nullptr) {
  if (result != twSuccess) throw Error{call, fmt::format("{}: {}", twGetErrorString(result), twGetLastError(comm))};
}

/// A signal to this process, after some time, from a thread of its own.
class Strike {
 public:
  Strike(int signal, int after_us)
      : thread_([signal, after_us] {
          std::this_thread::sleep_for(std::chrono::microseconds{after_us});
          ::kill(::getpid(), signal);
        }) {}
  ~Strike() { thread_.join(); }
  Strike(const Strike&) = delete;
  Strike& operator=(const Strike&) = delete;

 private:
  std::thread thread_;
};

/// A communicator and its window, which are given back on every path.
struct Handle {
  twComm_t comm = nullptr;
  twWindow_t window = nullptr;
  Handle() = default;
  ~Handle() {
    if (window != nullptr) twCommWindowDeregister(comm, window);
    twCommDestroy(comm);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
};

/// One round of one rank.
class Round {
 public:
  Round(int socket, Work& work, const Scenario& scenario, int rank) noexcept
      : socket_(socket), work_(work), scenario_(scenario), rank_(rank), guilty_(scenario.is_guilty(rank)) {}

  void play(const twUniqueId& id) {
    Handle all;
    const twConfig_t config = this->config();
    must(twCommInitRankConfig(&all.comm, kRanks, id, rank_, &config), "twCommInitRankConfig");
    register_window(all);
    work_.begin(all.comm, kRanks, rank_, scenario_.seed);
    const twResult_t result = scenario_.is_fatal() ? run_until_failure() : run(scenario_.operations);
    strike_.reset();
    const std::string line = twGetLastError(all.comm);
    if (!scenario_.is_fatal()) {
      if (result != twSuccess) throw Error{"an operation failed, and nobody was to blame", line};
    } else if (guilty_) {
      tell(socket_, "alone " + line);
    } else {
      tell(socket_, "lost " + line);
      go_on_without_the_guilty(all.comm, config);
    }
    work_.check_canaries();
  }

 private:
  [[nodiscard]] twConfig_t config() const noexcept {
    twConfig_t config TW_CONFIG_INITIALIZER;
    config.device = "soft";
    config.path = scenario_.packets ? twPathPackets : twPathAuto;
    config.operationTimeoutMs = scenario_.bound_ms;
    config.warningMs = 0;
    return config;
  }

  void register_window(Handle& of) const {
    if (!scenario_.windows) return;
    must(twCommWindowRegister(of.comm, work_.segment(), work_.segment_bytes(), &of.window, TW_WINDOW_DEFAULT),
         "twCommWindowRegister", of.comm);
  }

  twResult_t run(int operations) {
    twResult_t result = twSuccess;
    for (int i = 0; i < operations && result == twSuccess; ++i) result = step();
    return result;
  }

  twResult_t run_until_failure() {
    const Ps end = monotonic_now() + kFailsWithin;
    twResult_t result = twSuccess;
    while (result == twSuccess) {
      if (monotonic_now() > end) throw Error{"no operation failed", "though a rank is lost"};
      result = step();
    }
    return result;
  }

  /// The next operation, and what the guilty rank does about it.
  twResult_t step() {
    if (!guilty_ || work_.done() < static_cast<std::uint64_t>(scenario_.operation)) return work_.next();
    const bool first = !std::exchange(in_trouble_, true);
    if (first) tell(socket_, "trouble");
    switch (scenario_.trouble) {
      case Trouble::kPause:
      case Trouble::kStop:
        if (first) strike_.emplace(SIGSTOP, scenario_.delay_us);
        break;
      case Trouble::kKill:
        // Of two, the second may see the others fail before it dies itself.
        if (first)
          strike_.emplace(SIGKILL, rank_ == scenario_.guilty.front() ? scenario_.delay_us : 3 * scenario_.delay_us);
        break;
      case Trouble::kSlow: {
        const auto most_us = static_cast<std::uint32_t>(scenario_.pause_ms) * 1000;
        std::this_thread::sleep_for(std::chrono::microseconds{pace_.below(most_us)});
        break;
      }
      case Trouble::kDisagree:
        return work_.disagree();
      case Trouble::kNone:
        break;
    }
    return work_.next();
  }

  void go_on_without_the_guilty(twComm_t comm, const twConfig_t& before) {
    twConfig_t config = before;
    config.operationTimeoutMs = 8'000;
    const std::vector<int> survivors = scenario_.survivors();
    Handle few;
    must(twCommShrink(comm, scenario_.guilty.data(), static_cast<int>(scenario_.guilty.size()), &few.comm, &config,
                      TW_SHRINK_DEFAULT),
         "twCommShrink", comm);
    int ranks = 0, rank = 0;
    must(twCommCount(few.comm, &ranks), "twCommCount");
    must(twCommUserRank(few.comm, &rank), "twCommUserRank");
    if (ranks != static_cast<int>(survivors.size()) || survivors[static_cast<std::size_t>(rank)] != rank_) {
      throw Error{"twCommShrink", fmt::format("rank {} of {} is rank {} of {} now", rank_, kRanks, rank, ranks)};
    }
    register_window(few);
    tell(socket_, "shrunk");
    work_.begin(few.comm, ranks, rank, scenario_.seed + kAfterwards);
    twResult_t result = twSuccess;
    for (int i = 0; i < 2 * scenario_.operations && result == twSuccess; ++i) result = work_.next();
    if (result != twSuccess) throw Error{"an operation of the survivors failed", twGetLastError(few.comm)};
  }

  int socket_;
  Work& work_;
  const Scenario& scenario_;
  int rank_;
  bool guilty_;
  bool in_trouble_ = false;
  std::optional<Strike> strike_;
  Random pace_{mix64(scenario_.seed) + static_cast<std::uint64_t>(rank_)};
};

std::string play(int socket, Work& work, std::istringstream& words) {
  std::uint64_t seed = 0, number = 0;
  int rank = 0;
  std::string hex;
  words >> seed >> number >> rank >> hex;
  const Scenario round = scenario(seed, number);
  const std::string& faults = round.faults[static_cast<std::size_t>(rank)];
  if (faults.empty()) {
    ::unsetenv("TENSORWIRE_FAULTS");
  } else {
    ::setenv("TENSORWIRE_FAULTS", faults.c_str(), 1);
  }
  try {
    Round{socket, work, round, rank}.play(from_hex(hex));
  } catch (const std::exception& error) {
    return fmt::format("wrong {}", error.what());
  }
  return "done " + to_text(usage());
}

}  // namespace

int serve(int socket) {
  Work work;
  while (const auto message = hear(socket, -1)) {
    std::istringstream words{*message};
    std::string word;
    words >> word;
    std::string answer;
    if (word == "id") {
      twUniqueId id{};
      must(twGetUniqueId(&id), "twGetUniqueId");
      answer = "id " + to_hex(id);
    } else {
      answer = play(socket, work, words);
    }
    if (!tell(socket, answer)) return 1;
  }
  return 0;
}

}  // namespace tensorwire::chaos
