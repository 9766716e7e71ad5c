// Which priority a burst of known size rode in, as the counters at both of its ends show: a pure function of
// differences of counters. A priority carried the burst when it moved by what the burst weighs on the wire, within 5 %,
// above what it moves by when idle.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "host/activity.hpp"

namespace tensorwire::host {

inline constexpr double kProofTolerance = 0.05;

/// What an interface's counters did in a while.
struct CounterWindow {
  Ps elapsed = 0;
  Priorities priorities;
};

/// One end of a burst.
struct BurstEnd {
  std::string name;  ///< "gpu01 eth2"
  CounterWindow idle;
  CounterWindow burst;
  std::optional<PrioritySet> pfc;  ///< nothing: not known
  std::optional<Trust> trust;
};

/// What one end shows.
struct Ride {
  std::optional<unsigned> priority;
  std::uint64_t bytes = 0;     ///< above idle, in that priority
  double idle_per_second = 0;  ///< bytes of the same priority
  std::string why;             ///< there is no priority
};

/// @param bytes  PriorityActivity::sent_bytes or received_bytes
[[nodiscard]] Ride ride_of(const BurstEnd& end, BytesOf bytes, std::uint64_t expected);

enum class Classified : std::uint8_t {
  kLossless,  ///< proven at both ends, and lossless at both
  kUnsure,    ///< proven at both ends; whether it is lossless could not be read
  kLossy,     ///< proven: a priority without PFC, or another one at each end
  kUnknown,
};

struct ClassProof {
  Ride sender, receiver;
  Classified verdict = Classified::kUnknown;
  std::string conclusion;  ///< a sentence: "data is classified into priority 3 at both hosts, DSCP survives: proven"
};

/// @param dscp  that the burst's packets have
[[nodiscard]] ClassProof prove_class(const BurstEnd& sender, const BurstEnd& receiver, std::uint64_t expected,
                                     unsigned dscp);

/// What `payload` bytes weigh as RoCEv2 packets, as Ethernet interfaces count them.
[[nodiscard]] std::uint64_t bytes_on_wire(std::uint64_t payload, unsigned path_mtu, bool ipv6);

/// Who paused whom during the burst, a line each.
[[nodiscard]] std::vector<std::string> pauses_at(const BurstEnd& end);

}  // namespace tensorwire::host
