// Messages between the processes that share an address, over a datagram socket of each one's slot: strays, which are
// packets that the kernel gave to the wrong one, and answers to probes (receive_group.hpp). The kernel says who sends,
// and other users are not heard. Nothing waits: what finds a full queue is lost, as on a wire.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "base/unique_fd.hpp"
#include "softhca/process_slot.hpp"
#include "wire/icrc.hpp"

namespace tensorwire::softhca {

/// Packets of one receive buffer, in the order in which they came.
struct Stray {
  wire::Flow flow = {};
  std::uint8_t tos = 0;
  std::uint16_t first_packet = 0;  ///< its place in the buffer, which tells its IP identification
  std::uint32_t segment_bytes = 0;
  std::span<const std::byte> bytes;
};

/// "I am `slot`, and stand at `index` of the group of `gid`."
struct PlaceAnswer {
  wire::Gid gid = {};
  std::uint32_t round = 0;
  std::uint8_t slot = 0;
  std::uint8_t index = 0;
};

class Neighbours {
 public:
  /// `socket` is bound to neighbour_address(ipv4, slot) and passes credentials.
  Neighbours(UniqueFd socket, std::uint32_t ipv4);

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  void close() noexcept { socket_.reset(); }

  enum class Sent : std::uint8_t { kYes, kNobody, kLost };
  Sent send(std::uint8_t slot, const Stray& stray) noexcept;
  Sent send(std::uint8_t slot, const PlaceAnswer& answer) noexcept;

  /// The next message; monostate when there is none. A Stray's bytes are valid until the next call.
  using Message = std::variant<std::monostate, Stray, PlaceAnswer>;
  [[nodiscard]] Message receive() noexcept;

  /// How many slots of the address are taken, ours included.
  [[nodiscard]] std::size_t count_members() const noexcept;

 private:
  Sent send(std::uint8_t slot, std::span<const std::byte> head, std::span<const std::byte> body) noexcept;

  UniqueFd socket_;
  std::uint32_t ipv4_;
  std::vector<std::byte> buffer_;
};

}  // namespace tensorwire::softhca
