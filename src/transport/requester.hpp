// The requester half of a queue pair: cuts work requests into packets, remembers what is unacknowledged, answers ACKs,
// NAKs and time with completions or retransmissions (go-back-N). Owned by its Qp. Sending is in requester_tx.cpp,
// answers and time in requester_rx.cpp.
//
// Three PSNs and two ring indices tell the whole story:
//
//        una_psn_            next_psn_             high_psn_
//           |  on the wire      |  sent, to be re-sent  |  never sent
//   head WQE                WQE next_index_          WQE started_
//
// - una_psn_ <= next_psn_ <= high_psn_ (in the circle). una_psn_ lies in the head WQE, because a WQE completes as soon
//   as its last PSN is acknowledged. So every rewind ends in the head WQE.
// - next_psn_ is packet next_packet_ of WQE next_index_. WQEs before started_ have their PSNs; a WQE gets them when its
//   first packet leaves.
// - in_flight_ is the window charge of [una_psn_, next_psn_), and is part of the path's.
// - The timer runs exactly while una_psn_ != next_psn_ (acknowledge timeout), or while holding_ (RNR wait).
#pragma once

#include <cstdint>

#include "base/time.hpp"
#include "transport/engine.hpp"
#include "transport/send_queue.hpp"

namespace tensorwire::transport {

struct Core;
struct Qp;

class Requester {
 public:
  Requester(Core& core, Qp& qp) : core_(core), qp_(qp) {}

  /// RTR -> RTS: takes its parameters from the queue pair's attributes.
  void start() noexcept;
  /// Forgets everything that is under way.
  void stop() noexcept;
  /// stop(), and completes every posted work request with a flush error.
  void flush() noexcept;

  // ---- egress (requester_tx.cpp)
  /// Tells the scheduler whether this queue pair may send.
  void schedule() noexcept;
  /// A packet may leave now, as far as this queue pair is concerned.
  [[nodiscard]] bool ready() const noexcept;
  /// Payload bytes of the next packet; only when ready().
  [[nodiscard]] std::uint32_t next_payload() const noexcept;
  /// Builds the next packet; only when ready(). False: a local error, after which it is not ready any more.
  bool build(TxDesc& out, Ps now) noexcept;
  /// The packet with this PSN could not be read from memory.
  void source_lost(std::uint32_t psn) noexcept;
  /// The link refuses the packets of this queue pair for good.
  void refused() noexcept;

  // ---- answers and time (requester_rx.cpp)
  /// An answer to `psn` could have been caused by what was sent: neither old, nor of an earlier life of this QPN.
  [[nodiscard]] bool expects(std::uint32_t psn) const noexcept;
  /// AETH of an acknowledge packet that expects() let through.
  void on_acknowledge(std::uint8_t syndrome, std::uint32_t psn, Ps now) noexcept;
  void on_timer(Ps now) noexcept;

  // ---- tools that datagrams use, too
  /// Names the `bytes` bytes from `offset` of the work request at `index` as pieces, or as inline bytes.
  [[nodiscard]] WcStatus gather(std::uint32_t index, std::uint64_t offset, std::uint32_t bytes, TxDesc& out) noexcept;
  void complete_head(WcStatus status) noexcept;

 private:
  [[nodiscard]] std::uint32_t packets_of(const SendWqe& wqe) const noexcept;
  [[nodiscard]] std::uint32_t payload_of(const SendWqe& wqe, std::uint32_t packet) const noexcept;
  /// Window charge of the first `packets` packets of a started WQE.
  [[nodiscard]] std::uint64_t charge_before(const SendWqe& wqe, std::uint32_t packets) const noexcept;
  [[nodiscard]] bool window_fits(std::uint64_t charge) const noexcept;
  [[nodiscard]] bool wants_ack(bool last) noexcept;

  /// Everything before `end` is acknowledged. True on progress.
  bool advance(std::uint32_t end, Ps now) noexcept;
  /// Sends again from una_psn_.
  void rewind() noexcept;
  void retry(Ps now) noexcept;
  void on_sequence_nak(Ps now) noexcept;
  void on_rnr_nak(std::uint8_t code, Ps now) noexcept;
  void on_fatal_nak(std::uint8_t code) noexcept;
  void restart_timer(Ps now) noexcept;
  /// The WQE at next_index_ cannot be sent: fails at once when it is the oldest, else when those before it are done.
  void stall(WcStatus status) noexcept;
  void fail_head(WcStatus status) noexcept;
  void seek_head(std::uint32_t psn) noexcept;

  Core& core_;
  Qp& qp_;

  std::uint32_t una_psn_ = 0;
  std::uint32_t next_psn_ = 0;
  std::uint32_t high_psn_ = 0;
  std::uint32_t next_index_ = 0;
  std::uint32_t next_packet_ = 0;
  std::uint32_t started_ = 0;
  std::uint64_t in_flight_ = 0;

  std::uint32_t mtu_ = 0;
  std::uint32_t packet_charge_ = 0;  ///< of a full packet
  Ps timeout_ = kNever;
  std::uint32_t since_ack_request_ = 0;
  std::uint8_t retries_left_ = 0;
  std::uint8_t rnr_retries_left_ = 0;
  bool retrying_ = false;  ///< a NAK was answered; no other one is before progress or timeout
  bool holding_ = false;   ///< between RNR NAK and the end of its wait
  WcStatus stalled_ = WcStatus::kSuccess;
};

}  // namespace tensorwire::transport
