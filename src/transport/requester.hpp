// The requester half of a queue pair: cuts work requests into packets, remembers what is unacknowledged, answers ACKs,
// NAKs and time with completions or retransmissions (go-back-N). Owned by its Qp. Sending is in requester_tx.cpp,
// acknowledgements and time in requester_rx.cpp, what READ and atomics add to both in requester_fetch.cpp, requests
// that need no packet in requester_local.cpp.
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
// - A READ takes the PSNs of its responses. It leaves as one request, or as several that each ask for part of it, and
//   its PSNs are acknowledged one by one, by the responses alone: no ACK moves una_psn_ past a PSN of a fetch.
// - in_flight_ is the window charge of [una_psn_, next_psn_), and is part of the path's. A READ is charged for its
//   responses: they will fill our own receive buffer.
// - fetches_out_ is the number of READ and atomic requests in [una_psn_, next_psn_), at most max_rd_atomic.
// - A local request (bind, local invalidate) takes no PSN: it is executed when it is its turn to leave, which makes it
//   started, and passed over by whatever is sent again after a rewind. It completes in its order.
// - The timer runs exactly while una_psn_ != next_psn_ (acknowledge timeout), or while holding_ (RNR wait).
#pragma once

#include <array>
#include <cstdint>

#include "base/time.hpp"
#include "transport/attributes.hpp"
#include "transport/engine.hpp"
#include "transport/rx_plan.hpp"
#include "transport/send_queue.hpp"

namespace tensorwire::transport {

struct Core;
struct Qp;

class Requester {
 public:
  Requester(Core& core, Qp& qp) : core_(core), qp_(qp) {}

  /// RTR -> RTS.
  void start() noexcept;
  /// Takes its parameters from the attributes anew; nothing is in flight.
  void tune() noexcept;
  /// Nothing that was begun is incomplete.
  [[nodiscard]] bool drained() const noexcept;
  /// Forgets everything that is under way.
  void stop() noexcept;
  /// stop(), and completes every posted work request with a flush error.
  void flush() noexcept;

  // ---- egress (requester_tx.cpp)
  /// Tells the scheduler whether this queue pair may send.
  void schedule() noexcept;
  /// A packet may leave now, as far as this queue pair is concerned.
  [[nodiscard]] bool ready() const noexcept;
  /// Payload bytes of the next packet, and what it costs of the window; only when ready().
  [[nodiscard]] std::uint32_t next_payload() const noexcept;
  [[nodiscard]] std::uint64_t next_charge() const noexcept;
  /// Builds the next packet; only when ready(). False: none came of it, because it was a local request or met a local
  /// error; the scheduler was told whether there is more.
  bool build(TxDesc& out, Ps now) noexcept;
  /// The packet with this PSN could not be read from memory.
  void source_lost(std::uint32_t psn) noexcept;
  /// The link refuses the packets of this queue pair for good.
  void refused() noexcept;

  // ---- answers and time (requester_rx.cpp)
  /// Judges an answer for a queue pair in RTS; changes nothing.
  void classify(const wire::Headers& headers, std::uint32_t payload_bytes, RxVerdict& verdict) const noexcept;
  void commit(RxPlan plan, const wire::Headers& headers, std::uint32_t payload_bytes, Ps now) noexcept;
  void on_timer(Ps now) noexcept;

  // ---- tools that queue pairs without a requester use, too (unanswered.hpp)
  /// Payload and headers of packet number `packet` of the SEND or WRITE at `index`, cut by `mtu`; nothing but what
  /// depends on these.
  [[nodiscard]] WcStatus build_data(std::uint32_t index, std::uint32_t packet, std::uint32_t mtu, TxDesc& out) noexcept;
  /// Binds or invalidates, as the local request at `index` says. False: it must not.
  [[nodiscard]] bool execute_local(std::uint32_t index) noexcept;
  void complete_head(WcStatus status) noexcept;

 private:
  /// An answer to `psn` could have been caused by what was sent: neither old, nor of an earlier life of this QPN.
  [[nodiscard]] bool expects(std::uint32_t psn) const noexcept;
  void on_acknowledge(const wire::Headers& headers, Ps now) noexcept;

  // ---- what READ and atomics add (requester_fetch.cpp)
  [[nodiscard]] RxPlan judge_response(const wire::Headers& headers, std::uint32_t bytes,
                                      RxVerdict& verdict) const noexcept;
  void on_response(RxPlan plan, const wire::Headers& headers, std::uint32_t bytes, Ps now) noexcept;
  [[nodiscard]] bool store_original(std::uint64_t original) noexcept;
  /// Fences and the limit of outstanding fetches let this WQE's next packet go.
  [[nodiscard]] bool may_leave(const SendWqe& wqe) const noexcept;
  [[nodiscard]] WcStatus build_fetch(const SendWqe& wqe, TxDesc& out) const noexcept;
  /// Where the request for packet `packet` of a READ ends, counted in packets of the READ.
  [[nodiscard]] std::uint32_t request_end(const SendWqe& wqe, std::uint32_t packet) const noexcept;
  [[nodiscard]] std::uint32_t request_packets() const noexcept;
  /// Index of the oldest READ or atomic that is not complete; only when fetch_count_ != 0.
  [[nodiscard]] std::uint32_t first_fetch() const noexcept { return fetches_[fetch_first_]; }
  /// PSN of the response that is due.
  [[nodiscard]] std::uint32_t due_psn() const noexcept;
  void fetch_started(const SendWqe& wqe) noexcept;
  void fetch_advanced(const SendWqe& wqe, std::uint32_t from, std::uint32_t to) noexcept;
  void forget_fetches() noexcept { fetches_out_ = fetch_first_ = fetch_count_ = 0; }

  // ---- requests that need no packet (requester_local.cpp)
  void pass_local(SendWqe& wqe) noexcept;

  // ---- end-to-end credits
  void take_credits(const wire::Headers& headers) noexcept;
  /// The next packet of the WQE needs a receive WQE that the peer has not said it has.
  [[nodiscard]] bool beyond_credits(const SendWqe& wqe, bool last) const noexcept;

  /// Bytes of a full packet of this WQE, or of its response.
  [[nodiscard]] std::uint32_t mtu_of(const SendWqe& wqe) const noexcept {
    return wqe.fetch || wqe.cut ? fetch_mtu_ : mtu_;
  }
  /// Part of its source is memory that a peer cannot read by itself.
  [[nodiscard]] bool has_staged_source(std::uint32_t index) const noexcept;
  void number(SendWqe& wqe) noexcept;
  [[nodiscard]] std::uint32_t packets_of(const SendWqe& wqe) const noexcept;
  [[nodiscard]] std::uint32_t payload_of(const SendWqe& wqe, std::uint32_t packet) const noexcept;
  /// Window charge of the first `packets` packets of a WQE that has `all`.
  [[nodiscard]] std::uint64_t charge_before(const SendWqe& wqe, std::uint32_t all,
                                            std::uint32_t packets) const noexcept;
  /// Of the packets [from, to) of a started WQE.
  [[nodiscard]] std::uint64_t charge_between(const SendWqe& wqe, std::uint32_t from, std::uint32_t to) const noexcept;
  [[nodiscard]] bool window_fits(std::uint64_t charge) const noexcept;
  [[nodiscard]] bool wants_ack(const SendWqe& wqe, bool last) noexcept;
  /// Names the `bytes` bytes from `offset` of the work request at `index` as pieces, or as inline bytes.
  [[nodiscard]] WcStatus gather(std::uint32_t index, std::uint64_t offset, std::uint32_t bytes, TxDesc& out) noexcept;

  /// Everything before `end` is acknowledged. True on progress.
  bool advance(std::uint32_t end, Ps now) noexcept;
  /// Sends again from una_psn_.
  void rewind() noexcept;
  void retry(Ps now) noexcept;
  /// A sequence NAK, or the like of one: starts one retry until there is progress or a timeout.
  void on_loss(std::uint64_t& counter, Ps now) noexcept;
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

  std::array<std::uint32_t, kMaxRdAtomic> fetches_{};  ///< ring: started fetches that are not complete, by index
  std::uint32_t fetch_first_ = 0;
  std::uint32_t fetch_count_ = 0;
  std::uint32_t fetches_out_ = 0;
  std::uint32_t max_fetches_ = 0;

  std::uint32_t next_ssn_ = 1;      ///< of the WQE at started_
  std::uint32_t credit_limit_ = 0;  ///< the last SSN that the peer has a receive WQE for
  bool credits_given_ = false;      ///< the peer counts its receive WQEs; else there is no limit

  std::uint32_t mtu_ = 0;
  std::uint32_t fetch_mtu_ = 0;
  Ps timeout_ = kNever;
  std::uint32_t since_ack_request_ = 0;
  std::uint8_t retries_left_ = 0;
  std::uint8_t rnr_retries_left_ = 0;
  bool retrying_ = false;  ///< a NAK was answered; no other one is before progress or timeout
  bool holding_ = false;   ///< between RNR NAK and the end of its wait
  WcStatus stalled_ = WcStatus::kSuccess;
};

}  // namespace tensorwire::transport
