// Shared receive queues.
#include <algorithm>

#include "ibverbs/acknowledgement.hpp"
#include "ibverbs/export.hpp"
#include "ibverbs/objects.hpp"
#include "ibverbs/operations.hpp"

namespace tensorwire::ibverbs {

namespace {

SharedReceiveQueue* create(ibv_pd* pd, ibv_srq_init_attr& wanted) {
  Context& opened = of(pd->context);
  const softhca::DeviceLimits limits = opened.hca->limits();
  if (wanted.attr.max_wr == 0 || wanted.attr.max_wr > limits.max_srq_wr || wanted.attr.max_sge > limits.max_sge) {
    return fail<SharedReceiveQueue>(EINVAL);
  }
  auto srq = std::make_unique<SharedReceiveQueue>();
  srq->context = pd->context;
  srq->srq_context = wanted.srq_context;
  srq->pd = pd;
  srq->capabilities.max_wr = wanted.attr.max_wr;
  srq->capabilities.max_sge = std::max(wanted.attr.max_sge, 1U);
  srq->engine = opened.hca->create_srq(
      {.pd = of(pd).id, .max_wr = srq->capabilities.max_wr, .max_sge = srq->capabilities.max_sge, .user = srq.get()});
  init_acknowledgement(srq->mutex, srq->cond);
  wanted.attr = srq->capabilities;
  const std::lock_guard lock(opened.objects_mutex);
  if (opened.srqs.size() >= limits.max_srq) return fail<SharedReceiveQueue>(ENOMEM);
  opened.srqs.insert(srq.get());
  return srq.release();
}

int destroy(SharedReceiveQueue& srq) noexcept {
  if (srq.users.load() != 0) return EBUSY;
  Context& context = of(srq.context);
  srq.engine.reset();  // no event is raised after this
  drop_async_events(context, &srq);
  if (const int result =
          await_acknowledgement(srq.mutex, srq.cond, srq.events_completed, srq.reported_events, "shared receive queue");
      result != 0) {
    return result;
  }
  const std::lock_guard lock(context.objects_mutex);
  context.srqs.erase(&srq);
  destroy_acknowledgement(srq.mutex, srq.cond);
  delete &srq;
  return 0;
}

}  // namespace

}  // namespace tensorwire::ibverbs

namespace tw = tensorwire::ibverbs;

TENSORWIRE_VERB ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* srq_init_attr) {
  return tw::guarded(EINVAL, [&] { return tw::create(pd, *srq_init_attr); });
}

TENSORWIRE_VERB int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* srq_attr, int srq_attr_mask) {
  if ((srq_attr_mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
  if ((srq_attr_mask & IBV_SRQ_MAX_WR) != 0) return tw::not_supported("resizing a shared receive queue");
  return (srq_attr_mask & IBV_SRQ_LIMIT) != 0 ? tw::of(srq).engine->arm(srq_attr->srq_limit) : 0;
}

TENSORWIRE_VERB int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* srq_attr) {
  *srq_attr = tw::of(srq).capabilities;
  srq_attr->srq_limit = tw::of(srq).engine->limit();
  return 0;
}

TENSORWIRE_VERB int ibv_destroy_srq(ibv_srq* srq) { return tw::destroy(tw::of(srq)); }
