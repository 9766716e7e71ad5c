// What the tests of this room share: ports that nobody uses, and ranks as threads or as processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bootstrap/group.hpp"

namespace tensorwire::bootstrap::testing {

/// The first of kPortsTried ports that are all free, below the range of outgoing connections.
std::uint16_t free_ports();

GroupOptions options_of(int rank, int world_size, std::uint16_t port, Ps timeout = 20 * kSecond);

/// Runs `body` once per option set, each in its own thread. Returns what each one threw; empty: nothing.
std::vector<std::string> run_threads(const std::vector<GroupOptions>& ranks, const std::function<void(Group&)>& body);
std::vector<std::string> run_world(int world_size, const std::function<void(Group&)>& body);

/// A forked rank: joins, says so, runs `body`, and its last words are what `body` returns or what was thrown.
class RankProcess {
 public:
  RankProcess(const GroupOptions& options, const std::function<std::string(Group&)>& body);
  ~RankProcess();
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;

  void wait_joined() const;
  void kill() const;
  /// After it stopped itself.
  void resume() const;
  /// Blocks until the process has ended.
  std::string last_words() const;

 private:
  pid_t pid_;
  int pipe_;
};

/// Waits for a failure to be known, at most 5 s; returns "rank N after X ms: reason", for processes.
std::string await_failure(const Group& group);

/// A bare TCP connection to 127.0.0.1 by someone who is no rank.
int connect_stranger(std::uint16_t port);

}  // namespace tensorwire::bootstrap::testing
