#include "chaos/rank.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
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

/// Something that happens after some time, in a thread of its own.
class Strike {
 public:
  Strike(int after_us, std::function<void()> action)
      : thread_([after_us, action = std::move(action)] {
          std::this_thread::sleep_for(std::chrono::microseconds{after_us});
          action();
        }) {}
  ~Strike() { thread_.join(); }
  Strike(const Strike&) = delete;
  Strike& operator=(const Strike&) = delete;

 private:
  std::thread thread_;
};

std::function<void()> signal_self(int signal) {
  return [signal] { ::kill(::getpid(), signal); };
}

/// Not by setenv, which keeps every value that it was ever given.
void set_faults(const std::string& faults) {
  static std::array<char, 256> entry;
  ::unsetenv("TENSORWIRE_FAULTS");
  if (faults.empty()) return;
  *fmt::format_to_n(entry.data(), entry.size() - 1, "TENSORWIRE_FAULTS={}", faults).out = '\0';
  ::putenv(entry.data());
}

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
    const twConfig_t config = this->config(scenario_.bound_ms);
    must(twCommInitRankConfig(&all.comm, kRanks, id, rank_, &config), "twCommInitRankConfig");
    register_window(all);
    work_.begin(all.comm, kRanks, rank_, scenario_.seed);
    const twResult_t result = scenario_.is_fatal() ? run_until_failure(all.comm) : run(scenario_.operations);
    strike_.reset();
    const std::string line = twGetLastError(all.comm);
    if (!scenario_.is_fatal()) {
      if (result != twSuccess) throw Error{"an operation failed, and nobody was to blame", line};
    } else if (guilty_) {
      if (scenario_.trouble == Trouble::kAbort && result != twAborted) throw Error{"aborted, it ended otherwise", line};
      tell(socket_, "alone " + line);
    } else {
      tell(socket_, "lost " + line);
      go_on_without_the_guilty(all.comm);
    }
    work_.check_canaries();
  }

 private:
  [[nodiscard]] twConfig_t config(int bound_ms) const noexcept {
    twConfig_t config TW_CONFIG_INITIALIZER;
    config.device = "soft";
    config.path = scenario_.packets ? twPathPackets : twPathAuto;
    config.operationTimeoutMs = bound_ms;
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
    for (int i = 0; i < operations && result == twSuccess; ++i) result = step(nullptr);
    return result;
  }

  twResult_t run_until_failure(twComm_t comm) {
    const Ps end = monotonic_now() + kFailsWithin;
    twResult_t result = twSuccess;
    while (result == twSuccess) {
      if (monotonic_now() > end) throw Error{"no operation failed", "though a rank is lost"};
      result = step(comm);
    }
    return result;
  }

  /// The next operation, and what this rank does about it when it is guilty.
  twResult_t step(twComm_t comm) {
    if (work_.done() < static_cast<std::uint64_t>(scenario_.operation)) return work_.next();
    const bool first = !std::exchange(in_trouble_, true);
    if (guilty_) return misbehave(comm, first);
    if (first && scenario_.trouble == Trouble::kForsake) {
      strike_.emplace(scenario_.delay_us, [this, comm] { shrink(comm, TW_SHRINK_ABORT); });
    }
    return work_.next();
  }

  twResult_t misbehave(twComm_t comm, bool first) {
    if (first) tell(socket_, "trouble");
    switch (scenario_.trouble) {
      case Trouble::kPause:
      case Trouble::kStop:
        if (first) strike_.emplace(scenario_.delay_us, signal_self(SIGSTOP));
        break;
      case Trouble::kKill:
        // Of two, the second may see the others fail before it dies itself.
        if (first) {
          const bool leads = rank_ == scenario_.guilty.front();
          strike_.emplace(leads ? scenario_.delay_us : 3 * scenario_.delay_us, signal_self(SIGKILL));
        }
        break;
      case Trouble::kAbort:
        if (first) strike_.emplace(scenario_.delay_us, [comm] { twCommAbort(comm); });
        break;
      case Trouble::kForsake:
        wait_until_lost(comm);
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

  static void wait_until_lost(twComm_t comm) {
    twResult_t state = twSuccess;
    for (const Ps end = monotonic_now() + kFailsWithin; state == twSuccess && monotonic_now() < end;) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
      must(twCommGetAsyncError(comm, &state), "twCommGetAsyncError", comm);
    }
  }

  /// Into few_; in any thread.
  void shrink(twComm_t comm, int flags) noexcept {
    const twConfig_t config = this->config(8'000);
    shrunk_ = twCommShrink(comm, scenario_.guilty.data(), static_cast<int>(scenario_.guilty.size()), &few_.comm,
                           &config, flags);
  }

  void go_on_without_the_guilty(twComm_t comm) {
    const std::vector<int> survivors = scenario_.survivors();
    // Another thread may have done it.
    if (!shrunk_) shrink(comm, scenario_.trouble == Trouble::kForsake ? TW_SHRINK_ABORT : TW_SHRINK_DEFAULT);
    must(*shrunk_, "twCommShrink", comm);
    int ranks = 0, rank = 0;
    must(twCommCount(few_.comm, &ranks), "twCommCount");
    must(twCommUserRank(few_.comm, &rank), "twCommUserRank");
    if (ranks != static_cast<int>(survivors.size()) || survivors[static_cast<std::size_t>(rank)] != rank_) {
      throw Error{"twCommShrink", fmt::format("rank {} of {} is rank {} of {} now", rank_, kRanks, rank, ranks)};
    }
    register_window(few_);
    tell(socket_, "shrunk");
    work_.begin(few_.comm, ranks, rank, scenario_.seed + kAfterwards);
    twResult_t result = twSuccess;
    for (int i = 0; i < 2 * scenario_.operations && result == twSuccess; ++i) result = work_.next();
    if (result != twSuccess) throw Error{"an operation of the survivors failed", twGetLastError(few_.comm)};
  }

  int socket_;
  Work& work_;
  const Scenario& scenario_;
  int rank_;
  bool guilty_;
  bool in_trouble_ = false;
  Handle few_;  ///< the survivors' communicator
  std::optional<twResult_t> shrunk_;
  std::optional<Strike> strike_;
  Random pace_{mix64(scenario_.seed) + static_cast<std::uint64_t>(rank_)};
};

std::string play(int socket, Work& work, std::istringstream& words) {
  std::uint64_t seed = 0, number = 0;
  int rank = 0;
  std::string hex;
  words >> seed >> number >> rank >> hex;
  const Scenario round = scenario(seed, number);
  set_faults(round.faults[static_cast<std::size_t>(rank)]);
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
