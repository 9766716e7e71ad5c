// Making and destroying completion queues.
#include "ibverbs/acknowledgement.hpp"
#include "ibverbs/export.hpp"
#include "ibverbs/objects.hpp"
#include "ibverbs/operations.hpp"

namespace tensorwire::ibverbs {

namespace {

/// Fields of a completion that read_*() can give; the others are of features that this HCA has not.
constexpr std::uint64_t kReadableFields = IBV_WC_STANDARD_FLAGS;

CompletionQueue* create(ibv_context* context, const ibv_cq_init_attr_ex& wanted) {
  Context& opened = of(context);
  if (wanted.cqe == 0 || wanted.cqe > opened.hca->limits().max_cqe) return fail<CompletionQueue>(EINVAL);
  if (wanted.comp_vector >= static_cast<std::uint32_t>(context->num_comp_vectors)) return fail<CompletionQueue>(EINVAL);
  if (wanted.channel != nullptr && wanted.channel->context != context) return fail<CompletionQueue>(EINVAL);

  auto cq = std::make_unique<CompletionQueue>();
  cq->context = context;
  cq->channel = wanted.channel;
  cq->cq_context = wanted.cq_context;
  cq->engine = opened.hca->create_cq(wanted.cqe, {.function = on_completion_event, .user = cq.get()});
  cq->cqe = static_cast<int>(cq->engine->capacity());
  set_poll_functions(*cq);
  init_acknowledgement(cq->mutex, cq->cond);
  {
    const std::lock_guard lock(opened.objects_mutex);
    opened.cqs.insert(cq.get());
  }
  join_channel(*cq);
  return cq.release();
}

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) noexcept {
  return guarded(EINVAL, [&]() -> ibv_cq_ex* {
    if ((attributes->wc_flags & ~kReadableFields) != 0) {
      return fail<ibv_cq_ex>(not_supported("completion timestamps, flow tags, VLANs and tag matching"));
    }
    if ((attributes->comp_mask & ~std::uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS}) != 0) {
      return fail<ibv_cq_ex>(not_supported("completion queues with a parent domain"));
    }
    const std::uint32_t flags = (attributes->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attributes->flags : 0;
    if ((flags & ~std::uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED}) != 0) {
      return fail<ibv_cq_ex>(not_supported("completion queues that ignore overruns"));
    }
    CompletionQueue* cq = create(context, *attributes);
    if (cq != nullptr) cq->single_threaded = (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
    return cq;
  });
}

int destroy_cq(CompletionQueue& cq) noexcept {
  if (cq.users.load() != 0) return EBUSY;
  Context& context = of(cq.context);
  cq.engine.reset();  // no event is raised after this
  leave_channel(cq);
  drop_async_events(context, as_cq(cq));
  if (const int result =
          await_acknowledgement(cq.mutex, cq.cond, cq.comp_events_completed, cq.reported_events, "completion queue");
      result != 0) {
    return result;
  }
  if (const int result = await_acknowledgement(cq.mutex, cq.cond, cq.async_events_completed, cq.reported_async_events,
                                               "completion queue");
      result != 0) {
    return result;
  }
  const std::lock_guard lock(context.objects_mutex);
  context.cqs.erase(&cq);
  destroy_acknowledgement(cq.mutex, cq.cond);
  delete &cq;
  return 0;
}

}  // namespace tensorwire::ibverbs

namespace tw = tensorwire::ibverbs;

TENSORWIRE_VERB ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                                      int comp_vector) {
  return tw::guarded(EINVAL, [&]() -> ibv_cq* {
    if (cqe <= 0 || comp_vector < 0) return tw::fail<ibv_cq>(EINVAL);
    ibv_cq_init_attr_ex wanted{};
    wanted.cqe = static_cast<std::uint32_t>(cqe);
    wanted.cq_context = cq_context;
    wanted.channel = channel;
    wanted.comp_vector = static_cast<std::uint32_t>(comp_vector);
    tw::CompletionQueue* cq = tw::create(context, wanted);
    return cq == nullptr ? nullptr : tw::as_cq(*cq);
  });
}

TENSORWIRE_VERB int ibv_destroy_cq(ibv_cq* cq) { return tw::destroy_cq(tw::of(cq)); }

TENSORWIRE_VERB int ibv_resize_cq(ibv_cq*, int) { return tw::not_supported("resizing a completion queue"); }
