// What a UDP link knows of each process it talks to: the engine path, the receive buffer that the peer's hello told,
// and whether the peer has proved to be somebody else's HCA. Grows at set-up only; look-ups are a scan of a small
// vector with the last hit first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/time.hpp"
#include "softhca/process_slot.hpp"
#include "transport/engine.hpp"

namespace tensorwire::softhca {

/// Linux's stock net.core.rmem_default: what a peer that never said hello is believed to have.
inline constexpr std::uint64_t kStockReceiveBuffer = 212'992;

/// How many senders are expected to share a receive buffer at least.
inline constexpr std::uint64_t kExpectedSharers = 4;

/// Payload bytes that may be in flight towards a peer whose buffer reads back as `buffer_bytes` and which `sharers`
/// peers use. SO_RCVBUF counts skb->truesize, which is not the payload: measured on Linux 6.x, a 4112-byte datagram
/// sent alone costs 8520 (2.07 per byte), a 1040-byte one 2315 (2.23), one inside a super-packet 1.15 per byte. So 2.3,
/// which also leaves room for ACKs at 832 each and for the quarter of its buffer that a UDP socket may release late.
[[nodiscard]] constexpr std::uint64_t window_for(std::uint64_t buffer_bytes, std::uint64_t sharers) noexcept {
  return buffer_bytes / std::max(kExpectedSharers, sharers + 1) * 10 / 23;
}

struct Peer {
  ProcessAddress at;
  wire::Gid local;                                       ///< our address towards it
  std::optional<transport::PathId> path = std::nullopt;  ///< none until a queue pair of ours goes to RTR towards it
  bool hello_seen = false;                               ///< one of our own HCAs
  bool foreign = false;  ///< a packet of it was right only under an IP identification that ours never use
  std::uint64_t buffer_bytes = kStockReceiveBuffer;
  std::uint16_t sharers = 1;
  std::uint8_t hellos_left = 0;  ///< repeats while unanswered
  Ps next_hello = kNever;
};

class PeerTable {
 public:
  /// Bounds what strangers can make us remember.
  static constexpr std::size_t kMaxPeers = 4096;

  [[nodiscard]] Peer* find(const ProcessAddress& at) noexcept {
    if (last_ != nullptr && last_->at == at) return last_;
    for (const auto& peer : peers_) {
      if (peer->at == at) return last_ = peer.get();
    }
    return nullptr;
  }

  /// Null when the table is full.
  Peer* find_or_add(const ProcessAddress& at, const wire::Gid& local) {
    if (Peer* const peer = find(at); peer != nullptr) return peer;
    if (peers_.size() >= kMaxPeers) return nullptr;
    peers_.push_back(std::make_unique<Peer>(Peer{.at = at, .local = local}));
    return last_ = peers_.back().get();
  }

  /// Any process at an address that `wanted` holds for; null when there is none.
  template <typename Predicate>
  [[nodiscard]] Peer* find_at(const wire::Gid& gid, Predicate&& wanted) noexcept {
    for (const auto& peer : peers_) {
      if (peer->at.gid == gid && wanted(*peer)) return peer.get();
    }
    return nullptr;
  }

  [[nodiscard]] const std::vector<std::unique_ptr<Peer>>& all() const noexcept { return peers_; }

 private:
  std::vector<std::unique_ptr<Peer>> peers_;
  Peer* last_ = nullptr;
};

}  // namespace tensorwire::softhca
