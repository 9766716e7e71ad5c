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
#include "transport/ud.hpp"
#include "transport/unanswered.hpp"

namespace tensorwire::transport {

struct Qp final : QueuePair, QpLinks {
  Qp(const QpInit& qp_init, Core& engine_core)
      : QueuePair(qp_init),
        core(engine_core),
        requester(engine_core, *this),
        responder(engine_core, *this),
        unanswered(qp_init.type != QpType::kRc ? std::make_unique<Unanswered>(engine_core, *this) : nullptr),
        ud(qp_init.type == QpType::kUd ? std::make_unique<Ud>(engine_core, *this) : nullptr) {
    if (core.config.dcqcn.enabled && !ud) congestion = std::make_unique<Congestion>();
  }

  [[nodiscard]] SendQueue& send_queue() noexcept { return send_queue_; }
  [[nodiscard]] ReceiveQueue& receive_queue() noexcept { return receive_queue_; }
  [[nodiscard]] const ReceiveQueue& receive_queue() const noexcept { return receive_queue_; }

  /// The domain of its receive buffers.
  [[nodiscard]] PdId receive_pd() const noexcept { return init_.srq != nullptr ? init_.srq->init().pd : init_.pd; }

  /// Tells the scheduler whether it may send.
  void schedule_sends() noexcept {
    if (unanswered) {
      unanswered->schedule();
    } else {
      requester.schedule();
    }
  }
  /// RC and UC: the packet is one of its transport service, or a CNP.
  [[nodiscard]] bool serves(wire::Opcode opcode, const PacketSource& source) const noexcept {
    if (opcode == wire::Opcode::kCnp) return true;
    if (!unanswered) return wire::service_of(opcode) == wire::Service::kRc;
    return wire::service_of(opcode) == wire::Service::kUc && !source.whole_messages();
  }

  /// Applies a transition that check_modify() found legal. In SQD, only when drained.
  void apply(QpState next, const QpAttr& attr, std::uint32_t mask, PathId path);
  /// To ERR, with both queues flushed; an acknowledgement or NAK that is owed is still sent.
  void enter_error() noexcept;
  /// UC and UD, to SQE: the send queue is flushed, the receive queue goes on.
  void enter_send_error() noexcept;
  /// In SQD: says so, once, when nothing that had been begun is under way any more.
  void settle_drain() noexcept;
  /// Completes everything posted with a flush error, send queue first.
  void flush() noexcept;
  void raise(AsyncEvent event) noexcept;
  /// The one way of a completion into its queue.
  void complete(CompletionQueue& cq, const Completion& completion, bool solicited) noexcept {
    if (!cq.push(completion, solicited)) core.overrun = true;
  }

  // ---- congestion control; without it nothing ever waits
  [[nodiscard]] bool paced() const noexcept { return congestion != nullptr && congestion->waiting; }
  /// A data packet left: holds the next ones back where the rate says so.
  void pace(std::uint32_t payload_bytes, Ps now) noexcept;
  /// Of what it sends.
  void stop_pacing() noexcept;
  /// Of what it receives: marks that were not told by now are not told any more.
  void stop_notices() noexcept;
  void on_marked(Ps now) noexcept;
  void on_notice_deadline(Ps now) noexcept;
  void on_cnp(Ps now) noexcept;
  void build_cnp(TxDesc& out) noexcept;

  Core& core;
  Requester requester;
  Responder responder;
  std::unique_ptr<Unanswered> unanswered;  ///< UC and UD: in the place of the requester, whose tools it uses
  std::unique_ptr<Ud> ud;                  ///< UD: in the place of the responder, whose tools it uses
  std::unique_ptr<Congestion> congestion;  ///< none unless DCQCN is on; datagrams have none

 private:
  void begin_drain(const QpAttr& attr, std::uint32_t mask) noexcept;
  void change_drained(std::uint32_t mask, PathId path) noexcept;
  void take_path(PathId path) noexcept;
  void reset() noexcept;
};

// In the header, because every packet of a WRITE or READ passes here.
inline AccessResult Responder::check_remote(std::uint32_t key, std::uint64_t address, std::uint32_t length,
                                            std::uint32_t right, Piece& piece) const noexcept {
  const AccessResult result = core_.memory.check(key, qp_.init().pd, address, length, right, piece);
  if (result != AccessResult::kBadKey) return result;
  return check_window(key, address, length, right, piece);
}

}  // namespace tensorwire::transport
