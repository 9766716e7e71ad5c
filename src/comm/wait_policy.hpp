// How a rank waits for its peers: one policy for all links, so that comparisons between them are fair. Chosen once from
// cores and local ranks: with more waiters than cores, nobody burns the core that would serve him.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/time.hpp"

namespace tensorwire::comm {

enum class WaitPolicy : std::uint8_t {
  kAuto,           ///< by choose_wait_policy
  kSpin,           ///< poll with pause; a core per rank
  kSpinThenYield,  ///< poll a while, then give the core away between polls
  kBlock,          ///< poll a little, give the core away a few times, then sleep in the link
};

[[nodiscard]] std::string_view name_of(WaitPolicy policy) noexcept;

/// @param cores that this process may run on; @param local_ranks on this host
[[nodiscard]] WaitPolicy choose_wait_policy(unsigned cores, unsigned local_ranks) noexcept;

/// The cores that this process may run on, at least 1.
[[nodiscard]] unsigned usable_cores() noexcept;

class Link;

/// One wait: pause() after every poll that found nothing.
class Waiter {
 public:
  Waiter(WaitPolicy policy, Link& link) noexcept : policy_(policy), link_(&link) {}

  /// Call when a poll found something: the next wait begins anew.
  void reset() noexcept { idle_polls_ = 0; }
  void pause() noexcept;

 private:
  WaitPolicy policy_;
  Link* link_;
  std::uint32_t idle_polls_ = 0;
};

}  // namespace tensorwire::comm
