// A queue pair as its users see it: post, state, attributes. What happens to the work requests is in requester.cpp and
// responder.cpp. (The engine room owns the rest of this header; these calls are its public face.)
#pragma once

#include "transport/engine.hpp"
#include "transport/types.hpp"

namespace tensorwire::transport {

class QueuePair {
 public:
  /// Copies the work request (inline data included) into the send ring. Returns 0, or EINVAL (state RESET/INIT/RTR, too
  /// many SGEs, too much inline, message too long), ENOMEM (ring full), EOPNOTSUPP (opcode). In ERR the request is
  /// accepted and flushed. The owner then rings Engine::doorbell().
  int post_send(const SendWr& wr) noexcept;
  /// Returns 0, EINVAL (state RESET, too many SGEs) or ENOMEM. A request posted in ERR is flushed at the next
  /// doorbell().
  int post_recv(const RecvWr& wr) noexcept;

  [[nodiscard]] std::uint32_t qpn() const noexcept;
  [[nodiscard]] QpState state() const noexcept;  ///< any thread
  [[nodiscard]] const QpInit& init() const noexcept;
  [[nodiscard]] const QpAttr& attributes() const noexcept;  ///< owner's lock
  [[nodiscard]] PathId path() const noexcept;
};

}  // namespace tensorwire::transport
