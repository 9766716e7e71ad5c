// After every call of a host's engine: queue pairs, completions, events and egress are what the reference says.
#include <algorithm>
#include <optional>

#include "run.hpp"
#include "transport/queue_pair.hpp"
#include "violation.hpp"

namespace tensorwire::transport::faults {
namespace {

/// What the engine gave is what the reference wants next.
void expect_completion(const Completion& got, const Completion& want) {
  const bool either = want.vendor_error == ReferenceReceiver::kPerhapsProtection;
  require(got.status == want.status || (either && got.status == WcStatus::kLocalProtectionError),
          "a request completes with the status that the rules name");
  require(got.wr_id == want.wr_id, "requests complete in order");
  if (got.status != WcStatus::kSuccess) return;
  require(got.opcode == want.opcode && got.byte_len == want.byte_len && got.flags == want.flags &&
              got.immediate == want.immediate && got.invalidated_key == want.invalidated_key &&
              got.src_qp == want.src_qp,
          "a completion says what was done");
}

bool is_received(const Completion& completion) {
  return completion.opcode == WcOpcode::kRecv || completion.opcode == WcOpcode::kRecvWithImm;
}

}  // namespace

void Run::settle(std::size_t number) {
  for (std::size_t i = 0; i < owner_count_[number]; ++i) {
    End& end = owners_[number][i].connection->ends[owners_[number][i].side];
    // Found out when its packet is due, which the rate of the queue pair may put off.
    if (!paced(*end.qp) && !end.host->engine.has_tx()) end.ref.end_broken_repetitions();
    discover_failure(end);
    end.ref.settle_drain();
    end.ref.event_over();
  }
  for (UnansweredEnd* end : unanswered_at_[number]) {
    end->discover_failure();
    end->reference().settle_drain();
  }
  expect_overruns(number);
  for (std::size_t i = 0; i < owner_count_[number]; ++i)
    settle_end(*owners_[number][i].connection, owners_[number][i].side);
  for (UnansweredEnd* end : unanswered_at_[number]) {
    require(end->qp->state() == end->reference().state, "the queue pair is in the state that the rules name");
    settle_events(*end->host, end->reference().events, end->qpn);
  }
  if (shared_[number] != nullptr) shared_[number]->settle();
  for (SimCq& cq : hosts_[number].cqs) settle_queue(number, cq);
  arrived_ = {};
  settle_egress(number);
}

// ---- completions

/// What is one too many for its queue fails all who use that queue, and what they flush may be too many for another.
void Run::expect_overruns(std::size_t number) {
  SimHost& host = hosts_[number];
  const auto count = [&] {
    for (SimCq& cq : host.cqs) cq.pending = 0;
    for (std::size_t i = 0; i < owner_count_[number]; ++i) {
      const End& end = owners_[number][i].connection->ends[owners_[number][i].side];
      for (const Completion& completion : end.ref.completions) ++Connection::queue_of(end, completion).pending;
    }
    for (const UnansweredEnd* end : unanswered_at_[number])
      end->cq->pending += static_cast<std::uint32_t>(end->reference().completions.size());
  };
  count();
  bool first = true;
  for (;;) {
    const auto full = std::find_if(host.cqs.begin(), host.cqs.end(),
                                   [](const SimCq& cq) { return cq.pending > cq.queue.capacity() && !cq.overrun(); });
    if (full == host.cqs.end()) return;
    hits_(first ? Point::kOverrun : Point::kOverrunCascade);
    trace_.note(now_, number, "completion queue overran");
    first = false;
    full->expected = 1;
    fail_users(number, *full);
    count();
  }
}

void Run::fail_users(std::size_t number, const SimCq& cq) {
  for (std::size_t i = 0; i < owner_count_[number]; ++i) {
    End& end = owners_[number][i].connection->ends[owners_[number][i].side];
    if ((end.send_cq == &cq || end.recv_cq == &cq) && end.ref.state != QpState::kReset &&
        end.ref.state != QpState::kErr)
      end.ref.fail_fatally();
  }
  for (UnansweredEnd* end : unanswered_at_[number])
    if (end->cq == &cq && end->reference().state != QpState::kErr) end->reference().fail_fatally();
}

/// Each completion is the next one of its queue pair; none is missing, unless the queue was full: then those after it.
void Run::settle_queue(std::size_t number, SimCq& cq) {
  require(cq.told == cq.expected && cq.queue.overrun() == cq.overrun(), "an overrun is told, once");
  std::uint32_t count = 0;
  std::array<Completion, 64> polled;
  for (std::size_t n = cq.queue.poll(polled); n != 0; n = cq.queue.poll(polled)) {
    for (const Completion& got : std::span{polled}.first(n)) settle_completion(number, cq, got);
    count += static_cast<std::uint32_t>(n);
  }
  const std::uint32_t wanted = std::min(cq.pending, cq.queue.capacity());
  require(count == wanted, "every request completes");
  for (; count < cq.pending; ++count) hits_(Point::kCompletionLost);
  if (cq.pending > wanted) forget_lost(number, cq);
  cq.pending = 0;
}

/// Takes the next one that the reference wants from this queue.
Completion Run::take_expected(std::vector<Completion>& expected, const SimCq& cq, const End* end) {
  const auto next = std::find_if(expected.begin(), expected.end(), [&](const Completion& completion) {
    return end == nullptr || &Connection::queue_of(*end, completion) == &cq;
  });
  require(next != expected.end(), "a request completes once");
  const Completion taken = *next;
  expected.erase(next);
  return taken;
}

void Run::settle_completion(std::size_t number, SimCq& cq, const Completion& got) {
  if (const auto [connection, side] = owner(number, got.qp_num); connection != nullptr) {
    End& end = connection->ends[side];
    require(&Connection::queue_of(end, got) == &cq, "a completion comes in the queue of its kind");
    expect_completion(got, take_expected(end.ref.completions, cq, &end));
    if (end.srq != nullptr && is_received(got)) end.srq->slots.give_back(got.wr_id);
    if (got.status == WcStatus::kSuccess) connection->check_promise(side, got);
    return;
  }
  const auto& unanswered = unanswered_at_[number];
  const auto end = std::find_if(unanswered.begin(), unanswered.end(),
                                [&](const UnansweredEnd* candidate) { return candidate->qpn == got.qp_num; });
  require(end != unanswered.end(), "a completion names its queue pair");
  expect_completion(got, take_expected((*end)->reference().completions, cq, nullptr));
  if (!is_received(got)) return;
  if (got.status == WcStatus::kSuccess) (*end)->check_received(got.wr_id, arrived_.header, arrived_.sent);
  (*end)->slots_in_use().give_back(got.wr_id);
}

/// Completions that found no room. Their buffers are known to nobody but the simulator.
void Run::forget_lost(std::size_t number, const SimCq& cq) {
  for (std::size_t i = 0; i < owner_count_[number]; ++i) {
    End& end = owners_[number][i].connection->ends[owners_[number][i].side];
    std::erase_if(end.ref.completions, [&](const Completion& lost) {
      if (&Connection::queue_of(end, lost) != &cq) return false;
      if (end.srq != nullptr && is_received(lost)) end.srq->slots.give_back(lost.wr_id);
      return true;
    });
  }
  for (UnansweredEnd* end : unanswered_at_[number]) {
    if (end->cq != &cq) continue;
    for (const Completion& lost : end->reference().completions)
      if (is_received(lost)) end->slots_in_use().give_back(lost.wr_id);
    end->reference().completions.clear();
  }
}

// ---- states and events

/// Memory that is not registered any more is found out when its packet is due, which only the engine knows.
void Run::discover_failure(End& end) {
  if (end.qp->state() != QpState::kErr || end.ref.state == QpState::kErr) return;
  const auto& events = end.host->events.all;
  const std::pair access_error{AsyncEvent::kQpAccessError, end.qpn};
  if (std::find(events.begin(), events.end(), std::pair{AsyncEvent::kQpFatal, end.qpn}) != events.end()) return;
  const bool refused = std::find(events.begin(), events.end(), access_error) != events.end();
  if (refused) end.ref.end_broken_repetitions();  // those before the answer that failed
  if (refused && end.ref.reply_broken()) {
    end.ref.fail_reply(wire::NakCode::kRemoteAccess, end.ref.reply_psn());
  } else if (end.ref.local_broken()) {
    end.ref.fail_head(WcStatus::kWindowBindError);
  } else if (end.ref.source_broken()) {
    end.ref.fail_head(WcStatus::kLocalProtectionError);
  }
}

void Run::settle_end(Connection& connection, std::size_t side) {
  End& end = connection.ends[side];
  require(end.qp->state() == end.ref.state, "the queue pair is in the state that the rules name");

  require(end.ref.state != QpState::kSqd || end.qp->attributes().sq_draining == end.ref.draining(),
          "a send queue drains until what was begun is complete");
  settle_events(*end.host, end.ref.events, end.qpn);
  connection.plan_resumption(side, now_, later_);

  if (!connection.failed() || connection.recover_at != kNever || connection.finished()) return;
  const Ps patience = random_.below(2) == 0 ? end.ref.config.timeout * (end.ref.config.retry_cnt + 3) : kMicrosecond;
  connection.recover_at = now_ + patience + random_.below(200) * kMicrosecond;
}

void Run::settle_events(SimHost& host, std::vector<AsyncEvent>& expected, std::uint32_t qpn) {
  auto& raised = host.events.all;
  for (const AsyncEvent event : expected) {
    const auto at = std::find(raised.begin(), raised.end(), std::pair{event, qpn});
    require(at != raised.end(), "an asynchronous event is raised");
    raised.erase(at);
  }
  expected.clear();
}

void Run::settle_egress(std::size_t number) {
  const SimHost& host = hosts_[number];
  require(host.events.all.empty(), "no asynchronous event without a cause");
  Ps deadline = kNever;
  for (std::size_t i = 0; i < owner_count_[number]; ++i)
    deadline = std::min(deadline, owners_[number][i].connection->ends[owners_[number][i].side].ref.deadline);
  settle_rates(number, deadline);
  if (host.engine.has_tx()) return;
  for (const UnansweredEnd* end : unanswered_at_[number]) {
    require(end->reference().given() == 0, "what nobody answers completes when it has left");
    const bool waits = blocked(number, end->path) || paced(*end->qp);
    require(waits || !end->reference().ready(), "what nobody answers leaves");
  }
  std::optional<PathId> settled;
  for (std::size_t i = 0; i < owner_count_[number]; ++i) {
    const PathId path = owners_[number][i].connection->ends[owners_[number][i].side].path;
    if (path != settled && !blocked(number, path)) settle_path(number, path);
    settled = path;
  }
}

bool Run::blocked(std::size_t host, PathId path) const noexcept {
  return path == paths_[host] && blocked_until_[host] != 0;
}

/// A path on which whatever comes next fits into the window.
bool Run::window_open(std::size_t number, PathId path) const noexcept {
  std::uint64_t in_flight = 0;
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < owner_count_[number]; ++i) {
    const End& end = owners_[number][i].connection->ends[owners_[number][i].side];
    if (end.path != path) continue;
    in_flight += end.ref.in_flight;
    largest = std::max<std::uint64_t>(largest, end.ref.largest_charge());
  }
  return in_flight == 0 || in_flight + largest <= scenario_.path_window;
}

/// The engine has nothing to send on a path that is not blocked.
void Run::settle_path(std::size_t number, PathId path) {
  const bool path_open = window_open(number, path);
  for (std::size_t i = 0; i < owner_count_[number]; ++i) {
    const End& end = owners_[number][i].connection->ends[owners_[number][i].side];
    if (end.path != path) continue;
    const ReferenceQp& ref = end.ref;
    require(!ref.congestion.owed(), "a CNP can leave");
    const bool waits = paced(*end.qp) && ref.replies_pending();
    require(waits || (ref.owed == ReferenceQp::Owed::kNothing && !ref.replies_pending()),
            "what is owed to the peer can leave");
    require(!path_open || paced(*end.qp) || !ref.ready(), "what may be sent can leave");
  }
}

}  // namespace tensorwire::transport::faults
