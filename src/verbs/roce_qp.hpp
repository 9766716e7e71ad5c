// Brings a queue pair up on RoCEv2: RESET -> INIT -> RTR -> RTS with a global route header, as every RoCE port demands.
#pragma once

#include <cstdint>
#include <string>

#include "base/time.hpp"
#include "verbs/queue_pair.hpp"

namespace tensorwire::verbs {

/// How a connection behaves. The defaults suit one data-centre fabric with PFC and ECN on the class of DSCP 26.
struct ConnectOptions {
  std::uint8_t dscp = 26;           ///< 0..63; traffic_class = dscp << 2 = 104
  std::uint8_t hop_limit = 64;      ///< at least 64: routed fabrics must not eat the packet
  std::uint32_t flow_label = 0;     ///< 20 bits; 0: the HCA derives the UDP source port (ECMP entropy) from the QPNs
  std::uint8_t timeout = 14;        ///< 4.096 us * 2^timeout: 67 ms
  std::uint8_t retry_count = 7;     ///< unanswered packets: a dead peer shows after 0.5 to 2.2 s
  std::uint8_t rnr_retry = 6;       ///< 7 would be "for ever"; receives are posted before credit is given
  std::uint8_t min_rnr_timer = 18;  ///< 5.12 ms (InfiniBand specification, table 45)
  std::string peer;                 ///< who is at the other end, for error lines: "rank 3 on gpu07"
};

inline constexpr std::uint8_t kMinHopLimit = 64;

[[nodiscard]] constexpr std::uint8_t traffic_class_of(std::uint8_t dscp) noexcept {
  return static_cast<std::uint8_t>(dscp << 2);
}

/// Connects `qp` to `remote`; the path MTU is the smaller of both ends'. Receives cannot be
/// posted before (a queue pair in RESET takes none): post them after, and let the peer send only when they are there.
/// @throws Error with the failing step, the errno text, both GIDs and QPNs, the likely cause and what to do.
void transition_qp_to_rts(QueuePair& qp, const QpAddress& remote, const ConnectOptions& options);

/// Gives a queue pair in RTS the path that its context's GID index names now: RTS -> SQD, and back with the new path
/// once nothing is in flight, for which it waits `drain_bound`. False: it did not drain in time, or the device does not
/// do that; the queue pair goes on as it was.
[[nodiscard]] bool reroute_qp(QueuePair& qp, const QpAddress& remote, const ConnectOptions& options, Ps drain_bound);

}  // namespace tensorwire::verbs
