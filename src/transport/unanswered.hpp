// The sending half of UC and UD queue pairs: messages that nothing answers. No window counts their packets, no timer
// waits for them, none is sent twice. It stands where the requester stands on an RC queue pair and uses its tools for
// gathering, headers and completing. Owned by its Qp.
//
// - A send completes when the link is done with its last packet, which the next next_tx() call says: until then the
//   link reads the address, the inline bytes and the user's memory. The entries [head, next_index_) of the send queue
//   are with the link, and of the entry at next_index_ the first next_packet_ packets.
// - An error of a send stops the send queue (SQE) and nothing else.
#pragma once

#include <cstdint>

#include "transport/engine.hpp"
#include "transport/send_queue.hpp"

namespace tensorwire::transport {

struct Core;
struct Qp;

class Unanswered {
 public:
  Unanswered(Core& core, Qp& qp) : core_(core), qp_(qp) {}

  /// RTR -> RTS.
  void start() noexcept;
  /// Forgets everything that is under way.
  void stop() noexcept;
  /// Completes what is with the link, then flushes the rest of the send queue.
  void flush() noexcept;

  /// Nothing that was begun is incomplete.
  [[nodiscard]] bool drained() const noexcept;

  /// Tells the scheduler whether this queue pair may send; in SQE, flushes what was posted.
  void schedule() noexcept;
  /// A packet may leave now, as far as this queue pair is concerned.
  [[nodiscard]] bool ready() const noexcept;
  /// Payload bytes of the next packet; only when ready().
  [[nodiscard]] std::uint32_t next_payload() const noexcept;
  /// Builds the next packet; only when ready(). False: none came of it, because it was a local request (bind, local
  /// invalidate) or met a local error; the scheduler was told whether there is more.
  bool build(TxDesc& out) noexcept;
  /// The link is done with the packets that it was given.
  void complete_given() noexcept;
  /// The packet with this PSN could not be read from memory.
  void source_lost(std::uint32_t psn) noexcept;
  /// The link refuses the packets of this queue pair for good. A datagram is only lost: the next one may be shorter, or
  /// go elsewhere.
  void refused() noexcept;

 private:
  [[nodiscard]] bool datagrams() const noexcept;
  [[nodiscard]] std::uint32_t mtu_of(std::uint32_t index) const noexcept;
  void pass_local(SendWqe& wqe) noexcept;
  void address_datagram(const SendWqe& wqe, TxDesc& out) const noexcept;
  void fail(std::uint32_t index, WcStatus status) noexcept;
  void settle_failure() noexcept;

  Core& core_;
  Qp& qp_;
  std::uint32_t next_psn_ = 0;
  std::uint32_t next_index_ = 0;
  std::uint32_t next_packet_ = 0;
  std::uint32_t failed_index_ = 0;         ///< the entry that `failure_` is about
  WcStatus failure_ = WcStatus::kSuccess;  ///< waits until the entries before it have completed
};

}  // namespace tensorwire::transport
