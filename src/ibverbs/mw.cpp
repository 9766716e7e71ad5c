// Memory windows. Type 1 is bound by a verb of its own (ibv_bind_mw), which chooses the key; type 2 by a work request,
// whose maker chooses the key's low byte.
#include "ibverbs/export.hpp"
#include "ibverbs/objects.hpp"
#include "ibverbs/operations.hpp"
#include "ibverbs/raw_enum.hpp"

namespace tensorwire::ibverbs {

namespace {

static_assert(IBV_MW_TYPE_1 == static_cast<int>(transport::WindowType::k1));
static_assert(IBV_MW_TYPE_2 == static_cast<int>(transport::WindowType::k2));

/// Local rights mean nothing in a window, and are dropped: programs hand over those of the region.
constexpr unsigned kLocalRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;

/// False for what no window can be, such as a zero-based one.
bool translate_binding(const ibv_mw_bind_info& from, transport::WindowBinding& to) noexcept {
  const unsigned access = from.mw_access_flags & ~kLocalRights;
  to = {.address = from.addr, .length = from.length, .lkey = from.mr == nullptr ? 0 : from.mr->lkey, .access = access};
  return (access & ~transport::kAccessRemote) == 0;
}

}  // namespace

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) noexcept {
  return guarded(ENOMEM, [&]() -> ibv_mw* {
    const unsigned kind = raw(type);
    if (kind != IBV_MW_TYPE_1 && kind != IBV_MW_TYPE_2) return fail<ibv_mw>(EINVAL);
    Context& context = of(pd->context);
    auto mw = std::make_unique<Mw>();
    const int result = context.hca->allocate_window(of(pd).id, static_cast<transport::WindowType>(kind), mw->rkey);
    if (result != 0) return fail<ibv_mw>(result);
    mw->context = pd->context;
    mw->pd = pd;
    mw->handle = transport::window_of(mw->rkey);
    mw->type = type;
    const std::lock_guard lock(context.objects_mutex);
    context.mws.insert(mw.get());
    return mw.release();
  });
}

int dealloc_mw(ibv_mw* mw) noexcept {
  Context& context = of(mw->context);
  if (const int result = context.hca->deallocate_window(mw->handle << transport::kWindowTagBits); result != 0) {
    return result;
  }
  const std::lock_guard lock(context.objects_mutex);
  context.mws.erase(&of(mw));
  delete &of(mw);
  return 0;
}

int bind_mw(ibv_qp* base, ibv_mw* mw, ibv_mw_bind* bind) noexcept {
  QueuePair& qp = of(base);
  transport::WindowBinding binding;
  if (!translate_binding(bind->bind_info, binding)) return EINVAL;
  const std::uint32_t rkey = ibv_inc_rkey(mw->rkey);
  const int result = qp.hca->post_send(qp.engine,
                                       {.wr_id = bind->wr_id,
                                        .opcode = transport::WrOpcode::kBindWindow,
                                        .signaled = (bind->send_flags & IBV_SEND_SIGNALED) != 0,
                                        .fence = (bind->send_flags & IBV_SEND_FENCE) != 0,
                                        .rkey = rkey,
                                        .binding = &binding,
                                        .sges = {}},
                                       false);
  if (result == 0) mw->rkey = rkey;
  return result;
}

void translate_bind(const ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info& info,
                    transport::WindowBinding& binding, transport::SendWr& to) noexcept {
  to.rkey = rkey;
  const bool good = mw != nullptr && mw->type == IBV_MW_TYPE_2 && transport::window_of(rkey) == mw->handle &&
                    info.mr != nullptr && translate_binding(info, binding);
  to.binding = good ? &binding : nullptr;
}

}  // namespace tensorwire::ibverbs
