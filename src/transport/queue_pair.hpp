// A queue pair as its users see it: post, state, attributes. What happens to the work requests is in the requester and
// the responder (qp.hpp), which the engine owns and users never see.
#pragma once

#include <atomic>

#include "transport/engine.hpp"
#include "transport/receive_queue.hpp"
#include "transport/send_queue.hpp"
#include "transport/types.hpp"

namespace tensorwire::transport {

class QueuePair {
 public:
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  /// Copies the work request (inline data and address included) into the send ring. Returns 0, or EINVAL (state
  /// RESET/INIT/RTR, too many SGEs, too much inline, message too long, an atomic not of 8 bytes, READ, atomic or SEND
  /// with invalidate on UC, a local request with bytes, datagram without an address), ENOMEM (ring full), EOPNOTSUPP
  /// (opcode). In ERR and SQE the request is accepted and flushed, in SQD it waits. The owner then rings
  /// Engine::doorbell().
  int post_send(const SendWr& wr) noexcept;
  /// Returns 0, EINVAL (state RESET, too many SGEs, a shared receive queue) or ENOMEM. A request posted in ERR is
  /// flushed at the next doorbell().
  int post_recv(const RecvWr& wr) noexcept;

  [[nodiscard]] std::uint32_t qpn() const noexcept { return init_.qpn; }
  [[nodiscard]] QpState state() const noexcept { return state_.load(std::memory_order_acquire); }  ///< any thread
  [[nodiscard]] const QpInit& init() const noexcept { return init_; }
  [[nodiscard]] const QpAttr& attributes() const noexcept { return attributes_; }  ///< owner's lock
  [[nodiscard]] PathId path() const noexcept { return path_; }
  /// A number for each time that a queue pair of this engine went to RTR: what a link began before is not continued.
  [[nodiscard]] std::uint64_t life() const noexcept { return life_; }

 protected:
  explicit QueuePair(const QpInit& init);
  ~QueuePair() = default;

  QpInit init_;
  QpAttr attributes_;
  PathId path_ = kDefaultPath;
  std::uint64_t life_ = 0;
  std::atomic<QpState> state_{QpState::kReset};
  SendQueue send_queue_;
  ReceiveQueue receive_queue_;
};

}  // namespace tensorwire::transport
