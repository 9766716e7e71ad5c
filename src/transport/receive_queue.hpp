// Where a queue pair's messages find their buffers: a ring of its own, or a shared receive queue. From the shared one
// it takes a buffer when a message begins and holds it until the message ends, because other queue pairs take from
// there meanwhile; of its own ring it looks at the front. The rest of the engine sees no difference.
#pragma once

#include <array>
#include <cerrno>
#include <cstdint>
#include <span>

#include "transport/receive_ring.hpp"
#include "transport/shared_receive_queue.hpp"
#include "transport/types.hpp"

namespace tensorwire::transport {

class ReceiveQueue {
 public:
  ReceiveQueue(const QpCaps& caps, SharedReceiveQueue* shared)
      : shared_(shared),
        ring_(shared == nullptr ? caps.max_recv_wr : 0, shared == nullptr ? caps.max_recv_sge : 0,
              caps.late_rings || shared != nullptr) {}

  /// The posting thread. Returns 0, ENOMEM, or EINVAL: too many SGEs, or buffers go to the shared queue.
  int post(const RecvWr& wr) noexcept { return shared_ == nullptr ? ring_.post(wr) : EINVAL; }

  // ---- the engine
  [[nodiscard]] SharedReceiveQueue* shared() const noexcept { return shared_; }
  [[nodiscard]] bool empty() const noexcept { return !holding_ && source().empty(); }
  /// The buffer of the message under way, or of the next one; only when not empty.
  [[nodiscard]] const RecvWqe& front() const noexcept { return holding_ ? held_ : source().front(); }
  [[nodiscard]] std::span<const Sge> front_sges() const noexcept {
    return holding_ ? std::span<const Sge>{held_sges_.data(), held_.sge_count} : source().front_sges();
  }
  /// A message has begun that takes more than one step: its buffer is this queue pair's from here on.
  void hold() noexcept;
  void pop() noexcept;
  /// There are buffers that belong to this queue pair alone, so that they end with it.
  [[nodiscard]] bool has_own() const noexcept { return shared_ == nullptr ? !ring_.empty() : holding_; }
  void clear() noexcept;

 private:
  [[nodiscard]] const ReceiveRing& source() const noexcept { return shared_ == nullptr ? ring_ : shared_->ring(); }

  SharedReceiveQueue* shared_;
  ReceiveRing ring_;
  bool holding_ = false;  ///< only ever with a shared queue
  RecvWqe held_{};
  std::array<Sge, kMaxSge> held_sges_;
};

}  // namespace tensorwire::transport
