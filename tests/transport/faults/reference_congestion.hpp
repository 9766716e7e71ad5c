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
    owed_ = false;
  }
  /// A packet of the peer arrived marked.
  void on_marked(Ps now) {
    if (now < quiet_until_) return hits_(Point::kMarkedAgain);
    hits_(Point::kMarked);
    quiet_until_ = now + config_.cnp_interval;
    owed_ = true;
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
  DcqcnConfig config_;
  Hits& hits_;
  Ps quiet_until_ = -kNever;
  bool owed_ = false;
};

}  // namespace tensorwire::transport::faults
