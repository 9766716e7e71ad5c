// A queue pair as the engine sees it: the public face plus requester, responder, timer and places in the scheduler's
// lists. Lives from Engine::create_qp() to destroy_qp(), in the engine's map.
#pragma once

#include <memory>

#include "transport/congestion.hpp"
#include "transport/core.hpp"
#include "transport/qp_links.hpp"
#include "transport/queue_pair.hpp"
#include "transport/requester.hpp"
#include "transport/responder.hpp"

namespace tensorwire::transport {

struct Qp final : QueuePair, QpLinks {
  Qp(const QpInit& qp_init, Core& engine_core)
      : QueuePair(qp_init), core(engine_core), requester(engine_core, *this), responder(engine_core, *this) {
    if (core.config.dcqcn.enabled) congestion = std::make_unique<Congestion>();
  }

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

  // ---- congestion control; without it nothing ever waits
  [[nodiscard]] bool paced() const noexcept { return congestion != nullptr && congestion->waiting; }
  /// A data packet left: holds the next ones back where the rate says so.
  void pace(std::uint32_t payload_bytes, Ps now) noexcept;
  void stop_pacing() noexcept;
  void on_marked(Ps now) noexcept;
  void on_cnp(Ps now) noexcept;

  Core& core;
  Requester requester;
  Responder responder;
  std::unique_ptr<Congestion> congestion;  ///< none unless DCQCN is on

 private:
  void reset() noexcept;
};

}  // namespace tensorwire::transport
