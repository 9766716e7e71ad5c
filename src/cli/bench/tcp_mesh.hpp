// One kernel TCP connection (TCP_NODELAY, non-blocking) between each pair of ranks, and the bare exchange over it: the
// bytes of a plan, two sockets and nothing else. It is the yardstick for the plan over TCP.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bootstrap/group.hpp"
#include "cli/bench/exchange.hpp"
#include "cli/bench/wait.hpp"

namespace tensorwire::cli {

class TcpMesh {
 public:
  /// Collective over `group`: every rank calls it at the same point.
  /// @param address  of this host in network order, by which ranks of other hosts reach it. Where all ranks have the
  /// same one, or loopback's, they use the loopback interface. @throws Error naming the peer.
  TcpMesh(bootstrap::Group& group, std::uint32_t address);
  ~TcpMesh();
  TcpMesh(const TcpMesh&) = delete;
  TcpMesh& operator=(const TcpMesh&) = delete;

  /// The socket towards a peer; -1 for oneself.
  [[nodiscard]] int socket_of(int peer) const noexcept { return sockets_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(sockets_.size()); }

 private:
  void listen_and_connect(bootstrap::Group& group, std::uint32_t address);

  int rank_;
  std::vector<int> sockets_;
};

/// Moves the bytes of a phase over a mesh, both ways at once.
class BareTcpExchange {
 public:
  /// @param address  as TcpMesh has it
  BareTcpExchange(bootstrap::Group& group, std::uint32_t address, Waiter waiter);

  /// @throws Error when a peer closed its connection or nothing moved for 10 s.
  void exchange(const ExchangePhase& phase, const ExchangeBuffers& buffers);

 private:
  std::uint64_t write_some(int peer, std::uint64_t left, std::span<const std::byte> in);
  std::uint64_t read_some(int peer, std::uint64_t left, std::span<std::byte> out);

  TcpMesh mesh_;
  Waiter waiter_;
};

}  // namespace tensorwire::cli
