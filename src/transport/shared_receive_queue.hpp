// A shared receive queue (SRQ): one ring of receive buffers from which several queue pairs take, and the limit that
// tells its owner to refill (IB specification vol. 1, 10.2.9 and 11.2.3). Owned by the engine, from create_srq() to
// destroy_srq(). One thread at a time posts; everything else needs the engine's lock.
#pragma once

#include <cstdint>

#include "transport/receive_ring.hpp"
#include "transport/types.hpp"

namespace tensorwire::transport {

class EventListener;

struct SrqInit {
  PdId pd = 0;  ///< of the receive buffers; queue pairs of other domains may take from the queue
  std::uint32_t max_wr = 1;
  std::uint32_t max_sge = 1;
  void* user = nullptr;  ///< handed back in events
};

class SharedReceiveQueue {
 public:
  SharedReceiveQueue(const SrqInit& init, EventListener* events)
      : init_(init), events_(events), ring_(init.max_wr, init.max_sge) {}
  SharedReceiveQueue(const SharedReceiveQueue&) = delete;
  SharedReceiveQueue& operator=(const SharedReceiveQueue&) = delete;

  /// Posting thread. Returns 0, EINVAL (too many SGEs) or ENOMEM (full).
  int post(const RecvWr& wr) noexcept { return ring_.post(wr); }

  [[nodiscard]] const SrqInit& init() const noexcept { return init_; }
  /// 0: not armed.
  [[nodiscard]] std::uint32_t limit() const noexcept { return limit_; }
  /// Arms the limit: the first time that fewer than `limit` buffers are left raises kSrqLimitReached and disarms it,
  /// at once where that is so already. 0 disarms. Returns 0, or EINVAL (more than the queue holds).
  int arm(std::uint32_t limit) noexcept;

  // ---- the queue pairs, when a message needs a buffer
  [[nodiscard]] const ReceiveRing& ring() const noexcept { return ring_; }
  void pop() noexcept;

 private:
  void check_limit() noexcept;

  SrqInit init_;
  EventListener* events_;
  ReceiveRing ring_;
  std::uint32_t limit_ = 0;
};

}  // namespace tensorwire::transport
