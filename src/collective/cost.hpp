// What a plan costs on a fabric, in microseconds: its own steps are played through on a model of the ranks' processors
// and links (alpha-beta: a latency for each hop, a time for each byte, and the work for each message), so that every
// plan has a price, also one that is made tomorrow. Pure functions; docs/collectives.md, "What it costs".
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collective/builders.hpp"

namespace tensorwire::collective {

/// A fabric as `tensorwire tune` measures it. The defaults are a 100 Gb/s NIC with a processor that costs nothing.
struct FabricCost {
  double start_us = 0;                ///< once an operation: ranks do not begin at once, nor poll all the time before
  double hop_us = 2.0;                ///< from the post of an empty message until its arrival is seen
  double message_us = 0;              ///< work of the sender for each message
  double arrival_us = 0;              ///< work of the receiver for each message
  double wire_bytes_per_us = 12'500;  ///< each direction of a rank's link
  double copy_bytes_per_us = 1e12;    ///< bytes read by copies
  double reduce_bytes_per_us = 1e12;  ///< bytes read by reductions
  std::uint32_t mtu = 4096;           ///< payload of a packet; 0: messages travel whole, without headers
};

/// Bytes that a message of `payload` bytes puts on an Ethernet: each packet has 82 bytes around it (preamble, Ethernet,
/// IPv4, UDP, BTH, ICRC, FCS, gap), the first one a RETH of 16, the last one its immediate of 4.
[[nodiscard]] std::uint64_t wire_bytes(std::uint64_t payload, std::uint32_t mtu) noexcept;

/// When the last rank is through, if all begin at 0.
struct Price {
  double us = 0;       ///< of all segments
  double busy_us = 0;  ///< of the busiest processor or link, for one segment: what segments on end are paced by
  std::uint64_t messages = 0;
  std::uint64_t wire_bytes = 0;  ///< that the busiest rank sends, all segments
  std::uint64_t segments = 1;
};

/// One plan by itself. All steps must run (see check.hpp).
[[nodiscard]] Price price(const Plan& plan, const FabricCost& cost);

/// One way to do a collective, and its price: segments of a long message follow one another as the depth allows.
struct Candidate {
  Algorithm algorithm = Algorithm::kOneShot;
  BuildOptions build;
  Segmentation cut;
  Price price;
};

/// Every algorithm that can do it, the cheapest first. @throws Error on a shape that nothing can do.
[[nodiscard]] std::vector<Candidate> price_candidates(const Shape& shape, const FabricCost& cost,
                                                      std::uint64_t slot_payload_bytes, std::uint32_t depth,
                                                      const BuildOptions& build = {});
/// One of them; nothing if the algorithm cannot.
[[nodiscard]] std::optional<Candidate> price_candidate(const Shape& shape, Algorithm algorithm, const FabricCost& cost,
                                                       std::uint64_t slot_payload_bytes, std::uint32_t depth,
                                                       const BuildOptions& build = {});

}  // namespace tensorwire::collective
