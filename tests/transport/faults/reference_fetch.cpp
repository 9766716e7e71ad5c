// What READ and atomics add to the reference queue pair. As requester: requests that take the PSNs of their responses,
// a limit of how many are outstanding, fences, responses in order. As responder: executed once, answered again.
#include <algorithm>

#include "reference_qp.hpp"
#include "transport/scheduler.hpp"
#include "violation.hpp"

namespace tensorwire::transport::faults {

using wire::Opcode;
using wire::Position;

std::uint64_t ReferenceQp::packets(std::uint32_t length) const noexcept {
  return length == 0 ? 1 : (std::uint64_t{length} + config.mtu - 1) / config.mtu;
}

// ---- requester, egress

const ReferenceQp::Send* ReferenceQp::first_fetch() const noexcept {
  for (std::size_t i = head_; i < sends_.size() && sends_[i].first < high; ++i)
    if (sends_[i].fetch) return &sends_[i];
  return nullptr;
}

/// No request asks for more than half a window.
std::uint64_t ReferenceQp::request_packets() const noexcept {
  const std::uint64_t window = std::min(config.window, config.path_window);
  return std::max<std::uint64_t>(1, window / 2 / std::max<std::uint64_t>(config.mtu, kMinPacketCharge));
}

std::uint64_t ReferenceQp::request_end(const Send& send, std::uint64_t number) const noexcept {
  if (!send.fetch) return number + 1;
  const std::uint64_t whole = request_packets();
  const std::uint64_t request = (number - send.first) / whole;
  return std::min(send.first + (request + 1) * whole, send.end);
}

std::uint64_t ReferenceQp::request_charge(const Send& send, std::uint64_t number) const noexcept {
  std::uint64_t sum = 0;
  for (std::uint64_t n = number; n < request_end(send, number); ++n) sum += charge(send, n);
  return sum;
}

std::uint64_t ReferenceQp::largest_charge() const noexcept {
  return std::max<std::uint64_t>(largest_charge_,
                                 request_packets() * std::max<std::uint64_t>(config.mtu, kMinPacketCharge));
}

bool ReferenceQp::may_leave(const Send& send) const noexcept {
  std::uint32_t outstanding = 0;
  for (std::size_t i = head_; &sends_[i] != &send; ++i) {
    if (!sends_[i].fetch) continue;
    if (send.fence) return false;
    for (std::uint64_t n = std::max(una, sends_[i].first); n < std::min(next, sends_[i].end); ++n)
      if (request_end(sends_[i], n) == n + 1) ++outstanding;
  }
  if (!send.fetch) return true;
  for (std::uint64_t n = std::max(una, send.first); n < next; ++n)
    if (request_end(send, n) == n + 1) ++outstanding;
  return outstanding < config.rd_atomic;
}

void ReferenceQp::check_fetch_sent(const Send& send, const TxDesc& desc) const {
  const wire::Headers& h = desc.headers;
  require(h.rkey == send.rkey, "a request names the key as posted");
  require(h.ack_req, "a READ or atomic asks for its answer");
  if (send.opcode == WrOpcode::kRead) {
    const std::uint64_t begin = (next - send.first) * config.mtu;
    const std::uint64_t end = std::min<std::uint64_t>((request_end(send, next) - send.first) * config.mtu, send.length);
    require(h.opcode == Opcode::kRcReadRequest, "the opcode fits the request");
    require(h.va == send.remote_address + begin && h.dma_length == end - begin,
            "a READ asks for its part of the message");
    return;
  }
  const bool compare = send.opcode == WrOpcode::kCompareSwap;
  require(h.opcode == (compare ? Opcode::kRcCompareSwap : Opcode::kRcFetchAdd), "the opcode fits the request");
  require(h.va == send.remote_address, "an atomic names the word as posted");
  require(h.swap_add == (compare ? send.swap : send.compare_add), "an atomic brings its operands");
  require(!compare || h.compare == send.compare_add, "an atomic brings its operands");
}

// ---- requester, answers

Judgement ReferenceQp::judge_answer(const wire::Headers& headers, std::uint32_t bytes) const {
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  const std::uint32_t distance = (headers.psn - psn(una)) % (1U << 24);
  const std::uint64_t number = una + distance;
  const Send* fetch = first_fetch();
  Judgement judgement;
  judgement.drop = DropReason::kStale;
  if (credits_given_ && headers.opcode == Opcode::kRcAck && distance == (1U << 24) - 1) {
    judgement.drop = DropReason::kNone;
    judgement.action = RxAction::kControl;
    judgement.plan = RxPlan::kCredits;
    judgement.point = Point::kCreditsRefreshed;
    return judgement;
  }
  if (distance >= high - una) return judgement;
  if (headers.opcode != Opcode::kRcAck && (fetch == nullptr || number < std::max(una, fetch->first))) return judgement;

  judgement.drop = DropReason::kNone;
  judgement.action = RxAction::kControl;
  if (headers.opcode == Opcode::kRcAck) {
    judgement.plan = RxPlan::kAcknowledge;
  } else if (number > std::max(una, fetch->first)) {
    judgement.plan = RxPlan::kResponseGap;
    judgement.point = Point::kResponseGap;
  } else {
    judgement.plan = RxPlan::kResponseBad;
    judgement.point = Point::kResponseBad;
    const bool atomic = fetch->opcode != WrOpcode::kRead;
    if (atomic != traits.atomic_ack_eth || (traits.aeth && headers.syndrome / 32 != 0)) return judgement;
    const bool begins = traits.position == Position::kFirst || traits.position == Position::kOnly;
    const bool ends = traits.position == Position::kLast || traits.position == Position::kOnly;
    const bool must_begin = (number - fetch->first) % request_packets() == 0;
    const bool must_end = number + 1 == request_end(*fetch, number);
    if (!atomic && (ends != must_end || (must_begin && !begins) || bytes != payload(*fetch, number))) return judgement;
    judgement.verify_first = begins;
    judgement.bytes = bytes;
    judgement.plan = RxPlan::kResponse;
    judgement.point = Point::kResponse;
    if (atomic || bytes == 0) return judgement;
    const std::uint64_t offset = (number - fetch->first) * config.mtu;
    judgement.address = fetch->sges.items[0].address + offset;  // its elements are adjacent
    judgement.action = RxAction::kPlace;
    if (!registrations_.permits(fetch->sges, config.pd, offset, offset + bytes, kAccessLocalWrite)) {
      judgement.plan = RxPlan::kResponseUnplaced;
      judgement.action = RxAction::kControl;
    }
  }
  return judgement;
}

void ReferenceQp::on_response(const Judgement& judgement, const wire::Headers& headers, Ps now, const Memory& memory) {
  if (judgement.plan == RxPlan::kCredits) {
    hits_(judgement.point);
    return take_credits(headers);
  }
  const Send* fetch = first_fetch();
  advance(std::max(una, fetch->first), now);
  if (!sending()) return;
  if (judgement.plan == RxPlan::kResponseGap) return on_loss(judgement.point);
  hits_(judgement.point);
  if (judgement.plan == RxPlan::kResponseBad) return fail_head(WcStatus::kBadResponseError);
  const Send& send = sends_[head_];
  const bool atomic = headers.opcode == Opcode::kRcAtomicAck;
  if (judgement.plan == RxPlan::kResponseUnplaced || (atomic && (memory.gone || !accessible(send, una)))) {
    hits_(Point::kResponseUnplaced);
    return fail_head(WcStatus::kLocalProtectionError);
  }
  if (wire::traits(headers.opcode).aeth) take_credits(headers);
  advance(una + 1, now);
}

// ---- responder

void ReferenceQp::judge_fetch(const wire::Headers& headers, std::uint32_t bytes, Judgement& judgement) const {
  const bool atomic = headers.opcode != Opcode::kRcReadRequest;
  const std::uint32_t length = atomic ? kAtomicBytes : headers.dma_length;
  judgement.point = Point::kInvalidFetch;
  if (bytes != 0 || length > (1U << 31) || (atomic && headers.va % 8 != 0)) return;
  judgement.point = Point::kInvalidResources;
  if (fetched_.size() == config.dest_rd_atomic && (fetched_.empty() || !fetched_.front().answered)) return;
  judgement.point =
      length == 0 ? Point::kExecute
                  : refused_access(headers.rkey, headers.va, length, atomic ? kAccessRemoteAtomic : kAccessRemoteRead);
  judgement.plan = judgement.point == Point::kExecute ? RxPlan::kExecute : RxPlan::kRemoteAccess;
}

void ReferenceQp::execute_fetch(const wire::Headers& headers, const Memory& memory) {
  const bool read = headers.opcode == Opcode::kRcReadRequest;
  if (!read && memory.gone) {
    hits_(Point::kOperationalGone);
    hits_(Point::kAccessError);
    fail(wire::NakCode::kRemoteOperational);
    return events.push_back(AsyncEvent::kQpAccessError);
  }
  hits_(read ? Point::kExecuteRead : Point::kExecuteAtomic);
  const std::uint64_t count = read ? packets(headers.dma_length) : 1;
  if (fetched_.size() == config.dest_rd_atomic) fetched_.erase(fetched_.begin());
  fetched_.push_back({executed, executed + count, headers.opcode, headers.va, headers.rkey,
                      read ? headers.dma_length : 0, memory.original});
  pass(count);
  messages_ = (messages_ + 1) % (1U << 24);
  start_reply(fetched_.back(), fetched_.back().number, fetched_.back().length);
  owed = Owed::kNothing;  // the answer acknowledges what came before
  unacknowledged_ = 0;
}

void ReferenceQp::start_reply(Fetched& fetched, std::uint64_t from, std::uint32_t length) {
  fetched.pending = true;
  fetched.reply_from = fetched.reply_next = from;
  fetched.reply_length = length;
}

void ReferenceQp::repeat(const wire::Headers& headers) {
  const std::uint32_t behind = (static_cast<std::uint32_t>(config.rq_psn + executed) - headers.psn) % (1U << 24);
  if (wire::traits(headers.opcode).fetch) {
    if (behind <= executed) repeat_fetch(executed - behind, headers);
    return;
  }
  if (owed == Owed::kNak) return;
  const auto after = std::find_if(fetched_.begin(), fetched_.end(),
                                  [&](const Fetched& fetched) { return fetched.number + behind > executed; });
  if (after == fetched_.end() || owed == Owed::kAck) return owe_ack();
  const std::uint64_t last = config.rq_psn + after->number - 1;
  owed_psn_ = owed == Owed::kNothing ? last : std::max(owed_psn_, last);
  owed = Owed::kOldAck;
}

void ReferenceQp::repeat_fetch(std::uint64_t number, const wire::Headers& headers) {
  for (Fetched& fetched : fetched_) {
    if (number < fetched.number || number >= fetched.end) continue;
    const std::uint64_t skipped = (number - fetched.number) * config.mtu;
    if (headers.opcode != fetched.opcode || headers.va != fetched.va + skipped) return;
    const bool read = headers.opcode == Opcode::kRcReadRequest;
    if (read && (headers.rkey != fetched.rkey || skipped + headers.dma_length > fetched.length)) return;
    hits_(read ? Point::kReadRepeated : Point::kAtomicRepeated);
    return start_reply(fetched, read ? number : fetched.number, read ? headers.dma_length : 0);
  }
  hits_(Point::kFetchForgotten);
}

ReferenceQp::Fetched* ReferenceQp::oldest_reply() noexcept {
  for (Fetched& fetched : fetched_)
    if (fetched.pending) return &fetched;
  return nullptr;
}

const ReferenceQp::Fetched* ReferenceQp::oldest_reply() const noexcept {
  return const_cast<ReferenceQp*>(this)->oldest_reply();
}

bool ReferenceQp::replies_pending() const noexcept { return oldest_reply() != nullptr; }

std::uint32_t ReferenceQp::reply_psn() const noexcept {
  return static_cast<std::uint32_t>((config.rq_psn + oldest_reply()->reply_next) % (1U << 24));
}

void ReferenceQp::on_reply_sent(const TxDesc& desc) {
  end_broken_repetitions();
  Fetched* fetched = oldest_reply();
  require(fetched != nullptr, "an answer with data is owed to the peer, once");
  const wire::Headers& h = desc.headers;
  const std::uint64_t index = fetched->reply_next - fetched->reply_from;
  const auto sent = static_cast<std::uint32_t>(index * config.mtu);
  const std::uint32_t bytes = std::min(fetched->reply_length - sent, config.mtu);
  const bool first = index == 0;
  const bool last = sent + bytes == fetched->reply_length;
  require(h.psn == reply_psn(), "responses have the PSNs of their request, in order");
  require(h.syndrome == 0x1f && h.msn == messages_, "a response acknowledges as an ACK does");
  require(h.dest_qpn == config.peer_qpn && desc.av->remote == config.peer, "an answer goes to the peer");
  require(desc.payload_bytes == bytes && h.pad == (4 - bytes % 4) % 4, "a response carries its share of the message");
  if (fetched->opcode == Opcode::kRcReadRequest) {
    const unsigned code = first ? (last ? 0x10 : 0x0d) : (last ? 0x0f : 0x0e);
    require(static_cast<unsigned>(h.opcode) == code, "the opcode fits the place in the response");
    const std::uint64_t from = fetched->va + (fetched->reply_next - fetched->number) * config.mtu;
    require(bytes == 0 || (desc.piece_count == 1 && desc.pieces[0].address == from), "a READ reads what it names");
    require(!reply_broken(), "no response leaves from memory that is not registered");
  } else {
    require(h.opcode == Opcode::kRcAtomicAck, "the opcode fits the request");
    require(h.original == fetched->original, "an atomic is answered with what it found when it was executed");
  }
  ++fetched->reply_next;
  if (!last) return;
  fetched->pending = false;
  fetched->answered = true;
}

/// Whoever has had an answer gets it again only while its memory is there.
void ReferenceQp::end_broken_repetitions() noexcept {
  while (reply_broken() && oldest_reply()->answered) {
    oldest_reply()->pending = false;
    hits_(Point::kRepetitionBroken);
  }
}

bool ReferenceQp::reply_broken() const noexcept {
  const Fetched* fetched = oldest_reply();
  if (fetched == nullptr || fetched->opcode != Opcode::kRcReadRequest) return false;
  const auto sent = static_cast<std::uint32_t>((fetched->reply_next - fetched->reply_from) * config.mtu);
  const std::uint32_t bytes = std::min(fetched->reply_length - sent, config.mtu);
  const std::uint64_t from = fetched->va + (fetched->reply_next - fetched->number) * config.mtu;
  return bytes != 0 && registrations_.reach(fetched->rkey, config.pd, config.qpn, from, bytes, kAccessRemoteRead) !=
                           AccessResult::kOk;
}

void ReferenceQp::on_reply_lost(std::uint32_t lost_psn) {
  if (state == QpState::kRtr || sending()) fail_reply(wire::NakCode::kRemoteOperational, lost_psn);
}

/// The NAK takes the place of the response.
void ReferenceQp::fail_reply(wire::NakCode code, std::uint32_t at_psn) {
  hits_(code == wire::NakCode::kRemoteAccess ? Point::kReplyBroken : Point::kReplyGone);
  for (Fetched& fetched : fetched_) fetched.pending = false;
  refuse(static_cast<std::uint8_t>(0x60 + static_cast<unsigned>(code)));
  owed_psn_ = at_psn;
  if (state == QpState::kErr) return;  // its event was raised then
  hits_(Point::kAccessError);
  enter_error();
  events.push_back(AsyncEvent::kQpAccessError);
}

}  // namespace tensorwire::transport::faults
