// SQD (IB specification vol. 1, 10.3.1): a request whose first packet has left is brought to its end, also through
// retries; none begins. When all that were begun are complete the application may be told, may change some attributes,
// and goes on with the next request, which has the next PSN. The responder does not notice.
#include "reference_qp.hpp"
#include "violation.hpp"

namespace tensorwire::transport::faults {

void ReferenceQp::drain(bool notify) {
  hits_(Point::kRtsToSqd);
  if (drained()) hits_(Point::kDrainedAtOnce);
  state = QpState::kSqd;
  draining_ = true;
  wants_drained_event_ = notify;
}

void ReferenceQp::settle_drain() {
  if (!draining_ || !drained()) return;
  draining_ = false;
  require(in_flight == 0 && deadline == kNever, "a drained queue waits for no answer");
  hits_(wants_drained_event_ ? Point::kDrainedEvent : Point::kDrained);
  if (wants_drained_event_) events.push_back(AsyncEvent::kSqDrained);
}

void ReferenceQp::change_drained(const ReferenceConfig& changed) {
  hits_(Point::kDrainedChange);
  config = changed;
  retries_left_ = config.retry_cnt;
  rnr_retries_left_ = config.rnr_retry;
}

void ReferenceQp::resume() {
  hits_(Point::kSqdToRts);
  require(!draining_, "only a drained queue goes on");
  state = QpState::kRts;
}

void ReferenceQp::check_drain_sent(const Send& send) {
  if (state != QpState::kSqd) return;
  require(begun(send), "in SQD no request begins");
  hits_(next < high ? Point::kDrainRepeats : Point::kDrainEnds);
}

}  // namespace tensorwire::transport::faults
