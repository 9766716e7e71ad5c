// Completion channels and asynchronous events: queues behind a file descriptor.
#include <fmt/format.h>

#include "ibverbs/acknowledgement.hpp"
#include "ibverbs/export.hpp"
#include "ibverbs/objects.hpp"
#include "ibverbs/operations.hpp"

namespace tensorwire::ibverbs {

namespace {

static_assert(IBV_EVENT_QP_FATAL == static_cast<int>(softhca::HcaEvent::kQpFatal));
static_assert(IBV_EVENT_QP_ACCESS_ERR == static_cast<int>(softhca::HcaEvent::kQpAccessError));
static_assert(IBV_EVENT_SQ_DRAINED == static_cast<int>(softhca::HcaEvent::kSqDrained));
static_assert(IBV_EVENT_CQ_ERR == static_cast<int>(softhca::HcaEvent::kCqError));
static_assert(IBV_EVENT_SRQ_LIMIT_REACHED == static_cast<int>(softhca::HcaEvent::kSrqLimitReached));
static_assert(IBV_EVENT_QP_LAST_WQE_REACHED == static_cast<int>(softhca::HcaEvent::kLastWqeReached));
static_assert(IBV_EVENT_PORT_ACTIVE == static_cast<int>(softhca::HcaEvent::kPortActive));
static_assert(IBV_EVENT_GID_CHANGE == static_cast<int>(softhca::HcaEvent::kGidChange));

void append(CompletionChannel& channel, CompletionQueue& cq) noexcept {
  cq.next_in_channel = nullptr;
  (channel.last == nullptr ? channel.first : channel.last->next_in_channel) = &cq;
  channel.last = &cq;
}

void unlink(CompletionChannel& channel, CompletionQueue& cq) noexcept {
  CompletionQueue* previous = nullptr;
  for (CompletionQueue* at = channel.first; at != nullptr; previous = at, at = at->next_in_channel) {
    if (at != &cq) continue;
    (previous == nullptr ? channel.first : previous->next_in_channel) = cq.next_in_channel;
    if (channel.last == &cq) channel.last = previous;
    return;
  }
}

/// The oldest queue with an event, or null. Lock held.
CompletionQueue* take(CompletionChannel& channel) noexcept {
  CompletionQueue* cq = channel.first;
  if (cq == nullptr) return nullptr;
  unlink(channel, *cq);
  if (--cq->pending_events != 0) append(channel, *cq);
  ++cq->reported_events;
  channel.events.take();
  return cq;
}

bool concerns_queue_pair(ibv_event_type type) noexcept {
  return (type >= IBV_EVENT_QP_FATAL && type <= IBV_EVENT_SQ_DRAINED) || type == IBV_EVENT_QP_LAST_WQE_REACHED;
}

/// Event lock held.
void enqueue(Context& context, const ibv_async_event& event) noexcept {
  try {
    context.event_queue.push_back(event);
  } catch (const std::bad_alloc&) {
    return log_error("an asynchronous event was lost: no memory");
  }
  context.events.add();
}

}  // namespace

void on_completion_event(void* user) noexcept {
  CompletionQueue& cq = *static_cast<CompletionQueue*>(user);
  if (cq.channel == nullptr) return;
  CompletionChannel& channel = of(cq.channel);
  const std::lock_guard lock(channel.mutex);
  if (cq.pending_events++ == 0) append(channel, cq);
  channel.events.add();
}

void join_channel(CompletionQueue& cq) noexcept {
  if (cq.channel == nullptr) return;
  const std::lock_guard lock(of(cq.channel).mutex);
  ++cq.channel->refcnt;
}

void leave_channel(CompletionQueue& cq) noexcept {
  if (cq.channel == nullptr) return;
  CompletionChannel& channel = of(cq.channel);
  const std::lock_guard lock(channel.mutex);
  if (cq.pending_events != 0) unlink(channel, cq);
  for (; cq.pending_events != 0; --cq.pending_events) channel.events.take();
  --channel.refcnt;
  cq.channel = nullptr;
}

void on_hca_event(void* user, softhca::HcaEvent event, void* object) noexcept {
  Context& context = *static_cast<Context*>(user);
  ibv_async_event entry{};
  entry.event_type = static_cast<ibv_event_type>(event);
  const std::lock_guard objects_lock(context.objects_mutex);
  // An object that is not found is another context's, or was destroyed meanwhile.
  if (entry.event_type == IBV_EVENT_CQ_ERR) {
    auto* cq = static_cast<CompletionQueue*>(object);
    if (context.cqs.contains(cq)) fail_overrun(*cq);
    return;
  }
  if (concerns_queue_pair(entry.event_type)) {
    auto* qp = static_cast<QueuePair*>(object);
    if (!context.qps.contains(qp)) return;
    entry.element.qp = &qp->qp_base;
  } else if (entry.event_type == IBV_EVENT_SRQ_LIMIT_REACHED) {
    auto* srq = static_cast<SharedReceiveQueue*>(object);
    if (!context.srqs.contains(srq)) return;
    entry.element.srq = srq;
  } else {
    entry.element.port_num = 1;
  }
  const std::lock_guard lock(context.event_mutex);
  enqueue(context, entry);
}

int fail_overrun(CompletionQueue& cq) noexcept {
  if (cq.failure_told.exchange(true)) return EIO;
  log_warn(
      fmt::format("a completion queue of {} entries was full and lost completions. Make it as deep as the send and "
                  "receive queues that use it",
                  cq.cqe));
  Context& context = of(cq.context);
  ibv_async_event entry{};
  entry.event_type = IBV_EVENT_CQ_ERR;
  entry.element.cq = as_cq(cq);
  const std::lock_guard lock(context.event_mutex);
  enqueue(context, entry);
  return EIO;
}

void drop_async_events(Context& context, const void* object) noexcept {
  const std::lock_guard lock(context.event_mutex);
  const std::size_t dropped = std::erase_if(context.event_queue, [&](const ibv_async_event& event) {
    if (event.event_type == IBV_EVENT_CQ_ERR) return static_cast<const void*>(event.element.cq) == object;
    if (event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED) return event.element.srq == object;
    return concerns_queue_pair(event.event_type) && event.element.qp == object;
  });
  for (std::size_t i = 0; i < dropped; ++i) context.events.take();
}

}  // namespace tensorwire::ibverbs

namespace tw = tensorwire::ibverbs;

TENSORWIRE_VERB ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  return tw::guarded(EMFILE, [&]() -> ibv_comp_channel* {
    auto channel = std::make_unique<tw::CompletionChannel>();
    channel->context = context;
    channel->fd = channel->events.fd();
    return channel.release();
  });
}

TENSORWIRE_VERB int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  {
    const std::lock_guard lock(tw::of(channel).mutex);
    if (channel->refcnt != 0) return EBUSY;
  }
  delete &tw::of(channel);
  return 0;
}

TENSORWIRE_VERB int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  tw::CompletionChannel& source = tw::of(channel);
  for (;;) {
    {
      const std::lock_guard lock(source.mutex);
      if (tw::CompletionQueue* found = tw::take(source); found != nullptr) {
        *cq = tw::as_cq(*found);
        *cq_context = found->cq_context;
        return 0;
      }
    }
    if (source.events.wait() != 0) return -1;
  }
}

TENSORWIRE_VERB void ibv_ack_cq_events(ibv_cq* cq, unsigned nevents) {
  tw::acknowledge(cq->mutex, cq->cond, cq->comp_events_completed, nevents);
}

TENSORWIRE_VERB int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  tw::Context& source = tw::of(context);
  for (;;) {
    {
      const std::lock_guard lock(source.event_mutex);
      if (!source.event_queue.empty()) {
        *event = source.event_queue.front();
        source.event_queue.pop_front();
        source.events.take();
        if (event->event_type == IBV_EVENT_CQ_ERR) ++tw::of(event->element.cq).reported_async_events;
        if (event->event_type == IBV_EVENT_SRQ_LIMIT_REACHED) ++tw::of(event->element.srq).reported_events;
        if (tw::concerns_queue_pair(event->event_type)) ++tw::of(event->element.qp).reported_events;
        return 0;
      }
    }
    if (source.events.wait() != 0) return -1;
  }
}

TENSORWIRE_VERB void ibv_ack_async_event(ibv_async_event* event) {
  if (event->event_type == IBV_EVENT_CQ_ERR) {
    ibv_cq* cq = event->element.cq;
    tw::acknowledge(cq->mutex, cq->cond, cq->async_events_completed, 1);
  } else if (event->event_type == IBV_EVENT_SRQ_LIMIT_REACHED) {
    ibv_srq* srq = event->element.srq;
    tw::acknowledge(srq->mutex, srq->cond, srq->events_completed, 1);
  } else if (tw::concerns_queue_pair(event->event_type)) {
    ibv_qp* qp = event->element.qp;
    tw::acknowledge(qp->mutex, qp->cond, qp->events_completed, 1);
  }
}
