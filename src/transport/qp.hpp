// A queue pair as the engine sees it: the public face plus requester, responder, timer and places in the scheduler's
// lists. Lives from Engine::create_qp() to destroy_qp(), in the engine's map.
#pragma once

#include "transport/core.hpp"
#include "transport/qp_links.hpp"
#include "transport/queue_pair.hpp"
#include "transport/requester.hpp"
#include "transport/responder.hpp"

namespace tensorwire::transport {

struct Qp final : QueuePair, QpLinks {
  Qp(const QpInit& qp_init, Core& engine_core)
      : QueuePair(qp_init), core(engine_core), requester(engine_core, *this), responder(engine_core, *this) {}

  [[nodiscard]] SendQueue& send_queue() noexcept { return send_queue_; }
  [[nodiscard]] ReceiveQueue& receive_queue() noexcept { return receive_queue_; }
  [[nodiscard]] const ReceiveQueue& receive_queue() const noexcept { return receive_queue_; }

  /// Applies a transition that check_modify() found legal.
  void apply(QpState next, const QpAttr& attr, std::uint32_t mask, PathId path);
  /// To ERR, with both queues flushed; an acknowledgement or NAK that is owed is still sent.
  void enter_error() noexcept;
  /// Completes everything posted with a flush error, send queue first.
  void flush() noexcept;
  void raise(AsyncEvent event) noexcept;

  Core& core;
  Requester requester;
  Responder responder;
  std::size_t timer_slot = Timers::kUnset;

 private:
  void reset() noexcept;
};

}  // namespace tensorwire::transport
