// The datagram (UD) side of a queue pair, both halves: a message is a packet, to any address and from any, and nothing
// answers it. It stands where requester and responder stand on an RC queue pair and uses their tools for gathering,
// scattering and completing. Owned by its Qp.
//
// - A send completes when the link is done with its packet, which the next next_tx() call says: until then the link
//   reads the address, the inline bytes and the user's memory. The entries [head, next_index_) of the send queue are
//   with the link.
// - An error of a send stops the send queue (SQE) and nothing else. What a stranger sends can only be dropped and
//   counted; a receive buffer of our own that may not be written is an error of the queue pair (ERR).
#pragma once

#include <cstdint>

#include "transport/engine.hpp"
#include "transport/responder.hpp"

namespace tensorwire::transport {

struct Core;
struct Qp;

class Ud {
 public:
  Ud(Core& core, Qp& qp) : core_(core), qp_(qp) {}

  /// RTR -> RTS.
  void start() noexcept;
  /// Forgets everything that is under way.
  void stop() noexcept;
  /// Completes what is with the link, then flushes the rest of the send queue.
  void flush() noexcept;

  // ---- egress
  /// Tells the scheduler whether this queue pair may send; in SQE, flushes what was posted.
  void schedule() noexcept;
  [[nodiscard]] bool ready() const noexcept;
  [[nodiscard]] std::uint32_t next_payload() const noexcept;
  bool build(TxDesc& out) noexcept;
  /// The link is done with the packets that it was given.
  void complete_given() noexcept;
  /// The packet with this PSN could not be read from memory.
  void source_lost(std::uint32_t psn) noexcept;

  // ---- ingress
  /// P_Key and queue pair were checked by the engine.
  void classify(const wire::Headers& headers, std::uint32_t payload_bytes, const PacketSource& source,
                RxVerdict& verdict) const noexcept;
  void commit(RxPlan plan, const wire::Headers& headers, std::uint32_t payload_bytes) noexcept;
  /// The bytes of a packet that was judged kExecute could not be placed.
  void reject(const wire::Headers& headers) noexcept;

 private:
  [[nodiscard]] DropReason why_not(const wire::Headers& headers, std::uint32_t payload_bytes,
                                   const PacketSource& source) const noexcept;
  [[nodiscard]] bool receives() const noexcept;
  void complete_receive(const wire::Headers& headers, WcStatus status, std::uint32_t payload_bytes) noexcept;
  void fail_receive(const wire::Headers& headers) noexcept;
  void fail_send(WcStatus status) noexcept;

  Core& core_;
  Qp& qp_;
  std::uint32_t next_psn_ = 0;
  std::uint32_t next_index_ = 0;
  std::uint32_t failed_index_ = 0;         ///< the entry that `failure_` is about
  WcStatus failure_ = WcStatus::kSuccess;  ///< waits until the entries before it have completed
};

}  // namespace tensorwire::transport
