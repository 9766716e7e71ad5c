// A packet under way: its bytes, the headers around them that the ICRC covers, and a label that no engine sees and that
// says what the packet truly is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.hpp"
#include "wire/gid.hpp"
#include "wire/icrc.hpp"

namespace tensorwire::transport::faults {

/// PSNs of two lives of a direction stay further apart than any window: a packet of an earlier life must not pass for
/// one of this life. (On a real fabric the number is random and the peer's old packets die out meanwhile.)
inline constexpr std::uint32_t kLivesApart = 1U << 13;

enum class Truth : std::uint8_t { kGenuine, kCorrupt, kForged };

enum class Service : std::uint8_t { kReliable, kUnreliable, kDatagram };

struct Label {
  Truth truth = Truth::kForged;
  bool request = false;
  Service service = Service::kReliable;  ///< of others `connection` is a queue pair, `operation` its work request
  std::uint8_t connection = 0;
  std::uint8_t side = 0;     ///< of the sender
  std::uint32_t life = 0;    ///< of the sender's queue pair
  std::uint64_t number = 0;  ///< of a request in that life
  std::uint32_t operation = 0;
  std::uint32_t offset = 0;  ///< of the payload in the operation's message
};

struct Packet {
  Ps arrival = 0;
  std::uint64_t order = 0;
  std::uint8_t to = 0;  ///< host
  std::uint16_t ip_id = 0;
  std::uint8_t traffic_class = 0;
  wire::Flow flow;
  wire::Gid source;
  Label label;
  std::vector<std::byte> bytes;  ///< UDP payload, ICRC included
};

}  // namespace tensorwire::transport::faults
