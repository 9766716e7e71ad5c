// The bare-UDP floor: the packets of a RoCEv2 all-reduce (same sizes, same GSO batches, same order of peers) sent and
// received with no protocol at all: no sequence, no ICRC, no placement, no acknowledgement. What the soft HCA costs
// above this is its own.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <vector>

#include "base/time.hpp"
#include "cli/bench/exchange.hpp"
#include "cli/bench/wait.hpp"

namespace tensorwire::cli {

class UdpFloor {
 public:
  /// Binds a socket on 127.0.0.1. @throws Error.
  UdpFloor(int rank, int ranks, Waiter waiter);
  ~UdpFloor();
  UdpFloor(const UdpFloor&) = delete;
  UdpFloor& operator=(const UdpFloor&) = delete;

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Must be called once, with every rank's port(), before the first exchange.
  void set_peer_ports(std::vector<std::uint16_t> ports);

  /// One exchange; false when packets were lost (nothing arrived for 200 ms): the sample does not count.
  bool exchange(const ExchangePattern& pattern, const ExchangeBuffers& buffers);

  [[nodiscard]] std::uint64_t packets_sent() const noexcept { return packets_sent_; }

 private:
  void send_message(int peer, std::uint64_t payload_bytes);
  void send_batch(int peer, std::uint64_t packets, std::uint64_t packet_bytes);
  [[nodiscard]] std::array<iovec, 2> next_source(std::uint64_t bytes) noexcept;
  bool receive_some();
  bool wait_for(const ExchangePhase& phase);
  void forget_arrivals() noexcept;

  int rank_;
  Waiter waiter_;
  int fd_ = -1;
  std::uint16_t port_ = 0;
  std::vector<std::uint16_t> ports_;
  std::vector<std::uint64_t> received_;  ///< wire payload bytes by peer, beyond what finished phases consumed
  ExchangeBuffers buffers_;              ///< of the exchange under way
  std::size_t in_position_ = 0;          ///< where the next packet is sent from
  std::size_t out_position_ = 0;         ///< and where the next arrival goes
  std::vector<std::byte> padding_;       ///< stands in where a tensor is shorter than a datagram
  std::uint64_t packets_sent_ = 0;
};

}  // namespace tensorwire::cli
