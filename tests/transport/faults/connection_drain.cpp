// The application that drains a send queue in the middle of the work, looks that it can do nothing else meanwhile, and
// goes on, with other times and limits now and then.
#include <cerrno>

#include "connection.hpp"
#include "transport/queue_pair.hpp"
#include "transport/timing.hpp"

namespace tensorwire::transport::faults {

void Connection::drain(std::size_t side, Ps now, Random& random) {
  End& end = ends[side];
  QpAttr attr;
  attr.state = QpState::kSqd;
  attr.en_sqd_async_notify = random.below(3) != 0;
  const std::uint32_t mask = kAttrState | (attr.en_sqd_async_notify || random.below(2) == 0 ? kAttrEnSqdAsync : 0);
  require(end.host->engine.modify_qp(*end.qp, attr, mask, now, end.path) == 0, "RTS goes to SQD");
  end.ref.drain(attr.en_sqd_async_notify);
}

void Connection::plan_resumption(std::size_t side, Ps now, Random& random) {
  End& end = ends[side];
  if (end.ref.state != QpState::kSqd) return;
  if (!end.ref.draining()) {
    if (end.step_at == kNever) end.step_at = now + random.below(60) * kMicrosecond;
  } else if (random.below(16) == 0) {
    hits_(Point::kDrainRefuses);
    QpAttr attr;
    attr.state = QpState::kRts;
    require(end.host->engine.modify_qp(*end.qp, attr, kAttrState, now, end.path) == EINVAL, "it still drains");
    attr.state = QpState::kSqd;
    require(end.host->engine.modify_qp(*end.qp, attr, kAttrState | kAttrTimeout, now, end.path) == EINVAL,
            "it still drains");
  }
}

void Connection::resume(std::size_t side, Ps now, Random& random) {
  End& end = ends[side];
  Engine& engine = end.host->engine;
  end.step_at = kNever;
  QpAttr attr;
  if (random.below(2) == 0) {
    ReferenceConfig changed = end.ref.config;
    attr.state = QpState::kSqd;
    attr.timeout = static_cast<std::uint8_t>(5 + random.below(3));
    attr.retry_cnt = changed.retry_cnt = static_cast<std::uint8_t>(1 + random.below(7));
    attr.rnr_retry = changed.rnr_retry = static_cast<std::uint8_t>(1 + random.below(7));
    attr.min_rnr_timer = changed.min_rnr_timer = static_cast<std::uint8_t>(1 + random.below(10));
    attr.max_rd_atomic = changed.rd_atomic = static_cast<std::uint8_t>(1 + random.below(rd_atomic_));
    changed.timeout = ack_timeout(attr.timeout);
    end.timeout_code = attr.timeout;
    const std::uint32_t mask =
        kAttrState | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrMinRnrTimer | kAttrMaxQpRdAtomic;
    require(engine.modify_qp(*end.qp, attr, mask, now, end.path) == 0, "a drained queue pair takes other attributes");
    end.ref.change_drained(changed);
  }
  attr.state = QpState::kRts;
  require(engine.modify_qp(*end.qp, attr, kAttrState, now, end.path) == 0, "SQD goes to RTS");
  end.ref.resume();
}

}  // namespace tensorwire::transport::faults
