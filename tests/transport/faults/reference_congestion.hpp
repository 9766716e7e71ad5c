// The notification side of congestion control written a second time: when a queue pair owes its peer a congestion
// notification packet (CNP), and what that looks like. How fast a queue pair sends after one came is not predicted; the
// simulator holds rates against their limits.
#pragma once

#include "hits.hpp"
#include "transport/engine.hpp"
#include "violation.hpp"

namespace tensorwire::transport::faults {

class ReferenceCongestion {
 public:
  explicit ReferenceCongestion(Hits& hits) : hits_(hits) {}

  void reset(const DcqcnConfig& config) {
    config_ = config;
    quiet_until_ = -kNever;
    owed_ = unsaid_ = false;
  }
  /// ERR: what was not told by then is not told any more.
  void stop() { unsaid_ = false; }
  /// A packet of the peer arrived marked.
  void on_marked(Ps now) {
    if (now < quiet_until_) {
      unsaid_ = config_.trailing_cnp;
      return hits_(Point::kMarkedAgain);
    }
    hits_(Point::kMarked);
    tell(now);
  }
  /// When marks within an interval are to be told.
  [[nodiscard]] Ps deadline() const noexcept { return unsaid_ ? quiet_until_ : kNever; }
  void on_timer(Ps now) {
    if (deadline() > now) return;
    hits_(Point::kMarksToldLate);
    tell(now);
  }
  [[nodiscard]] bool owed() const noexcept { return owed_; }
  void on_cnp_sent(const TxDesc& desc, std::uint32_t peer_qpn, const wire::Gid& peer) {
    hits_(Point::kCnpSent);
    require(owed_, "a CNP is owed to the peer, once an interval");
    owed_ = false;
    require(desc.headers.becn && desc.headers.dest_qpn == peer_qpn && desc.av->remote == peer,
            "a CNP goes to the peer");
    require(desc.payload_bytes == 16 && desc.headers.psn == 0 && !desc.headers.ack_req && !desc.retransmission,
            "a CNP is sixteen reserved bytes and asks for nothing");
    require(desc.av->traffic_class == config_.cnp_traffic_class, "a CNP has a class of its own");
  }

 private:
  void tell(Ps now) {
    quiet_until_ = now + config_.cnp_interval;
    owed_ = true;
    unsaid_ = false;
  }

  DcqcnConfig config_;
  Hits& hits_;
  Ps quiet_until_ = -kNever;
  bool owed_ = false;
  bool unsaid_ = false;  ///< marked since the last CNP
};

}  // namespace tensorwire::transport::faults
