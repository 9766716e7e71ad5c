// Congestion control of one queue pair: what DCQCN (dcqcn.hpp) keeps for it, and what it owes to links and timers. Only
// queue pairs of an engine with DCQCN on have one. Owned by its Qp.
#pragma once

#include "transport/dcqcn.hpp"
#include "transport/engine.hpp"

namespace tensorwire::transport {

class Congestion {
 public:
  /// INIT -> RTR: no limit; CNPs go where data goes, in a class of their own.
  void start(const DcqcnConfig& config, AddressVector& av) noexcept;

  // ---- notification point
  /// A marked packet of this queue pair arrived. kNow: the peer is owed a CNP; kLater: look again at notice_deadline().
  CnpPacer::Verdict on_marked(const DcqcnConfig& config, Ps now) noexcept;
  [[nodiscard]] Ps notice_deadline() const noexcept { return pacer_.deadline(); }
  /// True when the peer is now owed a CNP.
  bool on_notice_deadline(const DcqcnConfig& config, Ps now) noexcept;
  [[nodiscard]] bool owes_cnp() const noexcept { return owes_cnp_; }
  void build_cnp(std::uint32_t dest_qpn, std::uint32_t src_qpn, PathId path, TxDesc& out) noexcept;

  // ---- reaction point
  void on_cnp(const DcqcnConfig& config, Ps now) noexcept { limiter_.on_cnp(config, now); }
  /// A packet left. Returns when the next one may: not after `now` when it may at once.
  Ps on_sent(const DcqcnConfig& config, std::uint32_t payload_bytes, Ps now) noexcept;
  [[nodiscard]] const RateLimiter& limiter() const noexcept { return limiter_; }

  bool waiting = false;  ///< the pacing timer runs; no data leaves before

 private:
  RateLimiter limiter_;
  CnpPacer pacer_;
  AddressVector cnp_av_;
  bool owes_cnp_ = false;
};

}  // namespace tensorwire::transport
