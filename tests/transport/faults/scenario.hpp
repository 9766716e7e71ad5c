// What a seed chooses before anything happens: kinds of fault and their rates, sizes of windows and queues, how many
// hosts and connections. Everything is drawn from the one generator, in one order; what came later (Run::make_later)
// from another one, so that seeds keep their meaning.
#pragma once

#include <array>
#include <cstdint>

#include "base/random.hpp"
#include "base/time.hpp"
#include "transport/engine.hpp"

namespace tensorwire::transport::faults {

enum class Fault : std::uint8_t {
  kLose,
  kDuplicate,
  kReorder,
  kReplay,
  kCorrupt,
  kJitter,
  kLinkDown,
  kOneWay,
  kPause,
  kRestart,
  kForge,
  kDefect,      ///< requests and receives that name memory which they must not reach
  kDeregister,  ///< of memory in use
  kMemory,      ///< memory vanishes
  kStarve,      ///< receives are posted late
  kAbort,       ///< the application sets a queue pair to ERR
  kCount
};

/// Kinds of address that a connection may use: IPv4, link-local and routable IPv6.
inline constexpr std::uint32_t kFamilies = 3;

struct Scenario {
  explicit Scenario(Random& random);
  /// What only some seeds have, beside the faults.
  void choose_features(Random& random);
  void choose_congestion(Random& random);

  [[nodiscard]] bool has(Fault fault) const noexcept { return (faults >> static_cast<unsigned>(fault) & 1U) != 0; }

  std::uint32_t faults = 0;  ///< bit set of Fault, three bits at least
  std::uint32_t hosts = 2;
  std::uint32_t connections = 1;
  bool whole = false;            ///< a same-host link: messages are not cut
  bool shared = false;           ///< hosts have a shared receive queue, from which most of their queue pairs take
  std::uint32_t families = 1;    ///< 1: IPv4 alone
  std::uint32_t datagrams = 0;   ///< datagram queue pairs in all
  std::uint32_t unreliable = 0;  ///< unreliable connections
  bool credits = false;          ///< some responders count their receive WQEs
  std::uint32_t mark = 0;        ///< ECN-capable packets that are marked, per million
  std::uint32_t cq_entries = 0;  ///< of a completion queue that is too small; 0: large enough
  EngineConfig engine;
  std::uint64_t path_window = 0;
  std::uint32_t deepest_queue = 30;  ///< work requests that a queue of a queue pair holds at most
  Ps delay = 0;
  Ps jitter = 0;
  std::uint32_t lose = 0, duplicate = 0, reorder = 0, replay = 0, corrupt = 0;  ///< per million packets
  std::uint32_t defect = 0;                                                     ///< per million requests
  std::uint32_t disturb = 0;  ///< per million steps: links, pauses, restarts, forgeries, memory
  std::uint32_t drain = 0;    ///< per million steps: a send queue is drained
  std::uint32_t windows = 0;  ///< per million steps: something is done about a memory window; 0: there are none
  std::uint32_t eager = 0;    ///< per million steps: the application posts
};

/// Work requests that a seed posts at least.
inline constexpr std::uint32_t kRequestsPerSeed = 200;

}  // namespace tensorwire::transport::faults
