#include "unanswered_end.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "transport/queue_pair.hpp"

namespace tensorwire::transport::faults {

UnansweredEnd::UnansweredEnd(const Kind& kind, const Scenario& scenario, Random& random, Hits& hits, SimHost& on,
                             std::size_t number)
    : host(&on),
      host_number(number),
      slots(scenario, random),
      kind_(kind),
      scenario_(scenario),
      random_(random),
      hits_(hits),
      caps_{1 + random.below(12), 1 + random.below(12), 4, 4, kind.max_inline} {}

void UnansweredEnd::create(SharedQueue* shared, std::uint32_t slot_bytes) {
  srq = shared;
  if (srq != nullptr) reference().share(srq->ref);
  slots.make(*host, host->pd, caps_.max_recv_wr + 2, slot_bytes);
  source_ = host->zone(kind_.source_bytes, 0);
  std::byte* bytes = host->arena.at(source_.address);
  for (std::uint32_t i = 0; i < kind_.source_bytes; ++i) bytes[i] = static_cast<std::byte>(random_.next());
  host->arena.expect(source_.address, {bytes, kind_.source_bytes});
  cq = &host->choose_cq(random_);
  create_qp();
}

void UnansweredEnd::create_qp() {
  QpInit init;
  init.type = kind_.type;
  init.qpn = qpn;
  init.pd = host->pd;
  init.send_cq = init.recv_cq = &cq->queue;
  init.caps = caps_;
  if (srq != nullptr) init.srq = &srq->engine;
  qp = &host->engine.create_qp(init);
}

void UnansweredEnd::modify(const QpAttr& attr, std::uint32_t mask, Ps now) {
  require(host->engine.modify_qp(*qp, attr, mask, now, path) == 0, "a legal transition succeeds");
  reference().state = attr.state;
}

// ---- lives

void UnansweredEnd::abort(Ps now) {
  if (reference().state == QpState::kErr) return;
  hits_(kind_.abort);
  QpAttr attr;
  attr.state = QpState::kErr;
  require(host->engine.modify_qp(*qp, attr, kAttrState, now) == 0, "any state goes to ERR");
  reference().set_error();
}

void UnansweredEnd::restart(Ps now) {
  hits_(kind_.restart);
  if (reference().holds()) srq->slots.give_back(reference().forget_receive());
  while (reference().receives_outstanding() != 0) slots.give_back(reference().forget_receive());
  if (cq->overrun() || random_.below(3) == 0) {
    host->engine.destroy_qp(*qp);
    cq = &host->fit(*cq);
    create_qp();
  } else {
    require(host->engine.modify_qp(*qp, {}, kAttrState, now) == 0, "any state goes to RESET");
  }
  bring_up(now);
}

bool UnansweredEnd::recover(Ps now) {
  const QpState state = reference().state;
  const bool drained = state == QpState::kSqd && !reference().draining();
  if ((drained || state == QpState::kSqe) && random_.below(4) == 0) {
    if (!drained) hits_(kind_.from_sqe_to_rts);
    QpAttr attr;
    attr.state = QpState::kRts;
    modify(attr, kAttrState, now);
    return true;
  }
  if (state != QpState::kErr || random_.below(4) != 0) return false;
  restart(now);
  return true;
}

void UnansweredEnd::drain(Ps now, Random& random) {
  if (reference().state != QpState::kRts) return;
  QpAttr attr;
  attr.state = QpState::kSqd;
  attr.en_sqd_async_notify = random.below(3) != 0;
  const std::uint32_t mask = kAttrState | (attr.en_sqd_async_notify ? kAttrEnSqdAsync : 0);
  require(host->engine.modify_qp(*qp, attr, mask, now) == 0, "RTS goes to SQD");
  reference().drain(attr.en_sqd_async_notify);
}

std::string UnansweredEnd::describe() const {
  const ReferenceUnanswered& ref = reference();
  return fmt::format("  {} qpn {:06x} host {}: state {} sends {} given {} receives {} posted {}/{}{}\n", kind_.name,
                     qpn, host_number, static_cast<int>(ref.state), ref.sends_outstanding(), ref.given(),
                     ref.receives_outstanding(), posted_, number_of_sends_, srq != nullptr ? ", shared queue" : "");
}

// ---- sends

SgeList UnansweredEnd::source_list(std::uint64_t address, std::uint32_t length) {
  if (!random_.chance(scenario_.defect)) return cut(random_, address, length, source_.key);
  switch (random_.below(4)) {
    case 0:
      return cut(random_, address, length, source_.key ^ 0x5a5a'0001U);
    case 1:
      return cut(random_, address, length, source_.other_domain);
    case 2:
      return cut(random_, address, length, source_.deregistered);
    default: {
      SgeList sges;
      sges.add({source_.end() - length + 1, length, source_.key});
      return sges;
    }
  }
}

SgeList UnansweredEnd::inline_list(std::uint64_t address, std::uint32_t length) {
  scratch_.assign(host->arena.at(address), host->arena.at(address) + length);
  return cut(random_, reinterpret_cast<std::uintptr_t>(scratch_.data()), length, 0);
}

bool UnansweredEnd::post(SendWr& wr, const ReferenceUnanswered::Send& send, Ps now) {
  wr.wr_id = send.wr_id;
  wr.opcode = send.opcode;
  wr.signaled = send.signaled;
  wr.solicited = send.solicited;
  wr.inline_data = send.inline_data;
  wr.immediate = send.immediate;
  wr.sges = send.sges.span();
  const int result = qp->post_send(wr);
  const bool full = reference().sends_outstanding() == caps_.max_send_wr;
  require(result == (full ? ENOMEM : 0), "a request is taken unless the ring is full");
  if (full) return false;
  std::fill(scratch_.begin(), scratch_.end(), std::byte{0x3c});
  ++posted_;
  reference().post_send(send);
  host->engine.doorbell(*qp, now);
  reference().doorbell();
  return true;
}

void UnansweredEnd::discover_failure() {
  ReferenceUnanswered& ref = reference();
  // In ERR it may have been this failure's flush that was too much for the completion queue.
  const bool stopped = qp->state() == QpState::kSqe || qp->state() == QpState::kErr;
  // A send queue that said that it is drained had not looked at what comes next.
  const bool drained = std::ranges::count(host->events.all, std::pair{AsyncEvent::kSqDrained, qpn}) != 0;
  if (stopped && !drained && can_send(ref.state) && ref.given() == 0 && ref.source_broken()) ref.fail_source();
}

bool UnansweredEnd::finished() const noexcept { return all_posted() && reference().sends_outstanding() == 0; }

// ---- receives

bool UnansweredEnd::post_receive() {
  const std::uint64_t slot = slots.next();
  const SgeList sges = slots.list(slot);
  const int result = qp->post_recv({slot, sges.span()});
  const bool full = reference().receives_outstanding() == caps_.max_recv_wr;
  require(result == (full ? ENOMEM : 0), "a receive is taken unless the ring is full");
  if (full) return false;
  slots.posted();
  reference().post_receive(slot, sges);
  return true;
}

bool UnansweredEnd::post_receives() {
  if (srq != nullptr) return srq->refill();
  if (reference().state == QpState::kErr) return false;
  bool posted = false;
  for (std::uint32_t n = random_.below(scenario_.has(Fault::kStarve) ? 2 : 6); n != 0 && post_receive(); --n)
    posted = true;
  return posted;
}

void UnansweredEnd::check_received(std::uint64_t wr_id, std::span<const std::byte> header,
                                   std::span<const std::byte> sent) const {
  const std::uint64_t place = srq != nullptr ? srq->slots.address_of(wr_id) : slots.address_of(wr_id);
  const std::byte* at = host->arena.at(place);
  const auto stands = [](const std::byte* there, std::span<const std::byte> wanted) {
    return std::ranges::equal(std::span{there, wanted.size()}, wanted);
  };
  require(stands(at, header), "the packet's network header stands before a datagram");
  require(stands(at + header.size(), sent), "a message arrives as it was sent");
}

}  // namespace tensorwire::transport::faults
