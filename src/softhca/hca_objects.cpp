// What verbs calls do to objects. Set-up calls take the shard's lock and so return when no pass can be at work on what
// they changed; the data path only tries it.
#include <algorithm>
#include <cerrno>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "softhca/cq.hpp"
#include "softhca/hca_impl.hpp"
#include "transport/qp.hpp"

namespace tensorwire::softhca {

namespace {

/// A fork's child holds a copy of an Hca that only the parent can run.
constexpr int kDeadErrno = EIO;

}  // namespace

transport::PdId HcaImpl::create_pd() {
  if (dead_) throw system_error("create a protection domain in a forked child", kDeadErrno);
  return shard_.locked([&] {
    const transport::PdId pd = shard_.engine().create_pd();
    pds_.insert(pd);
    return pd;
  });
}

int HcaImpl::destroy_pd(transport::PdId pd) {
  if (dead_) return kDeadErrno;
  return shard_.locked([&] {
    if (!pds_.contains(pd)) return EINVAL;
    const int error = shard_.engine().destroy_pd(pd);
    if (error == 0) pds_.erase(pd);
    return error;
  });
}

std::unique_ptr<Cq> HcaImpl::create_cq(std::uint32_t capacity, CqCallback callback) {
  if (capacity == 0 || capacity > limits().max_cqe) {
    throw Error{"create a completion queue of " + std::to_string(capacity), errno_text(EINVAL),
                "Use 1 to " + std::to_string(limits().max_cqe)};
  }
  return std::make_unique<CqImpl>(*this, capacity, callback);
}

void HcaImpl::forget(CqImpl& cq) noexcept {
  if (dead_) return;
  shard_.locked([&] { shard_.forget(cq); });
  shard_.wait_for_events();
}

std::uint32_t HcaImpl::pick_qpn() {
  for (;;) {
    const std::uint32_t qpn = std::uint32_t{shard_.address().slot} << kSlotShift | random_.below(kSerialMask + 1);
    if (shard_.engine().find_qp(qpn) == nullptr) return qpn;
  }
}

Qp* HcaImpl::create_qp(const transport::QpInit& init, Cq& send_cq, Cq& recv_cq, void* user) {
  if (dead_) throw system_error("create a queue pair in a forked child", kDeadErrno);
  auto qp = std::make_unique<Qp>();
  qp->send_cq = &dynamic_cast<CqImpl&>(send_cq);
  qp->recv_cq = &dynamic_cast<CqImpl&>(recv_cq);
  qp->user = user;
  if (init.type == transport::QpType::kUd) qp->link_description = "RoCEv2 packets (datagrams)";
  // Datagrams may come to any of our addresses.
  const std::vector<GidEntry> gids = init.type == transport::QpType::kUd ? gid_table() : std::vector<GidEntry>{};
  return shard_.locked([&] {
    for (const GidEntry& entry : gids) {
      if (entry.usable) shard_.udp().use_address(entry.gid);
    }
    if (qps_.size() >= limits().max_qp) throw system_error("create a queue pair: all 4096 are in use", ENOMEM);
    transport::QpInit mine = init;
    mine.qpn = pick_qpn();
    mine.send_cq = &qp->send_cq->ring();
    mine.recv_cq = &qp->recv_cq->ring();
    mine.user = qp.get();
    qp->engine_qp = &shard_.engine().create_qp(mine);
    Qp* const handle = qp.get();
    qps_.emplace(handle, std::move(qp));
    return handle;
  });
}

int HcaImpl::destroy_qp(Qp* qp) {
  if (dead_) return kDeadErrno;
  let_out_held();
  {
    // Its completions are taken out of the queues, whose consumers must not poll meanwhile.
    std::unique_lock send_consumers{qp->send_cq->consumer_mutex(), std::defer_lock};
    std::unique_lock recv_consumers{qp->recv_cq->consumer_mutex(), std::defer_lock};
    if (qp->send_cq == qp->recv_cq) {
      send_consumers.lock();
    } else {
      std::lock(send_consumers, recv_consumers);
    }
    shard_.locked([&] {
      shard_.take_doorbells(monotonic_now());
      shard_.udp().read_sources();
      shard_.engine().destroy_qp(*qp->engine_qp);
      shard_.forget_events(qp);
    });
  }
  shard_.wait_for_events();
  shard_.locked([&] { qps_.erase(qp); });
  return 0;
}

std::uint32_t HcaImpl::qpn(const Qp* qp) const noexcept { return qp->engine_qp->qpn(); }

transport::QpState HcaImpl::state(const Qp* qp) const noexcept { return qp->engine_qp->state(); }

transport::QpAttr HcaImpl::query_qp(const Qp* qp) const {
  return shard_.locked([&] {
    transport::QpAttr attr = qp->engine_qp->attributes();
    attr.state = attr.cur_state = qp->engine_qp->state();
    return attr;
  });
}

int HcaImpl::post_send(Qp* qp, const transport::SendWr& wr, bool more) noexcept {
  if (dead_.load(std::memory_order_relaxed)) return kDeadErrno;
  {
    const std::lock_guard guard{qp->send_mutex};
    const int error = qp->engine_qp->post_send(wr);
    if (error != 0) {
      // What was posted before it in this chain had its doorbell put off to a request that never came.
      shard_.ring(*qp);
      progress_inline(Shard::Depth::kTransmit);
      return error;
    }
  }
  if (more) return 0;
  shard_.ring(*qp);
  progress_inline(Shard::Depth::kTransmit);
  return 0;
}

int HcaImpl::post_send_batch(Qp* qp, std::span<const transport::SendWr> batch) noexcept {
  if (dead_.load(std::memory_order_relaxed)) return kDeadErrno;
  int error = 0;
  {
    const std::lock_guard guard{qp->send_mutex};
    // Room only grows while this lock is held: what fits now fits.
    const transport::SendQueue& queue = static_cast<transport::Qp*>(qp->engine_qp)->send_queue();
    const std::uint32_t used = queue.posted() - queue.head();
    if (batch.size() > qp->engine_qp->init().caps.max_send_wr - used) return ENOMEM;
    for (const transport::SendWr& wr : batch) {
      if (error == 0) error = qp->engine_qp->post_send(wr);
    }
  }
  shard_.ring(*qp);
  progress_inline(Shard::Depth::kTransmit);
  return error;
}

int HcaImpl::post_recv(Qp* qp, const transport::RecvWr& wr) noexcept {
  if (dead_.load(std::memory_order_relaxed)) return kDeadErrno;
  int error = 0;
  {
    const std::lock_guard guard{qp->recv_mutex};
    error = qp->engine_qp->post_recv(wr);
  }
  // In the error state a receive is flushed, which takes a look of the engine.
  if (error == 0 && qp->engine_qp->state() == transport::QpState::kErr) {
    shard_.ring(*qp);
    progress_inline(Shard::Depth::kTransmit);
  }
  return error;
}

}  // namespace tensorwire::softhca
