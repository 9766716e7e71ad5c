// Protection domains and memory regions.
#include "ibverbs/export.hpp"
#include "ibverbs/objects.hpp"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace tensorwire::ibverbs {

namespace {

/// The rights that the HCA checks. Hints are dropped: a program may give them to any device, and a device without use
/// for them ignores them.
constexpr unsigned kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
constexpr unsigned kHints = unsigned{IBV_ACCESS_HUGETLB} | IBV_ACCESS_OPTIONAL_RANGE;

static_assert(IBV_ACCESS_LOCAL_WRITE == transport::kAccessLocalWrite);
static_assert(IBV_ACCESS_REMOTE_WRITE == transport::kAccessRemoteWrite);
static_assert(IBV_ACCESS_REMOTE_READ == transport::kAccessRemoteRead);
static_assert(IBV_ACCESS_REMOTE_ATOMIC == transport::kAccessRemoteAtomic);
static_assert(IBV_ACCESS_MW_BIND == transport::kAccessWindowBind);

/// `add(key)` tells the HCA of the region, and returns an errno.
template <class Add>
ibv_mr* register_with(ibv_pd* pd, void* address, std::size_t length, unsigned access, Add add) {
  if ((access & ~(kRights | kHints)) != 0) {
    return fail<ibv_mr>(not_supported("memory registration with on-demand paging or zero-based addresses"));
  }
  // IB specification 10.6.3.1: whoever may be written from afar is writable here.
  const bool remote_write = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if (remote_write && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return fail<ibv_mr>(EINVAL);

  Context& context = of(pd->context);
  auto mr = std::make_unique<Mr>();
  std::uint32_t key = 0;
  const int result = add(*context.hca, key);
  if (result != 0) return fail<ibv_mr>(result);
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  mr->handle = key;
  mr->lkey = key;
  mr->rkey = key;
  const std::lock_guard lock(context.objects_mutex);
  context.mrs.insert(mr.get());
  return mr.release();
}

ibv_mr* register_region(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, unsigned access) {
  return register_with(pd, address, length, access, [&](softhca::Hca& hca, std::uint32_t& key) {
    return hca.register_memory(of(pd).id, reinterpret_cast<std::uint64_t>(address), length, iova, access & kRights,
                               key);
  });
}

ibv_mr* register_dmabuf(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                        unsigned access) {
  return register_with(pd, reinterpret_cast<void*>(offset), length, access, [&](softhca::Hca& hca, std::uint32_t& key) {
    return hca.register_dmabuf(of(pd).id, fd, offset, length, iova, access & kRights, key);
  });
}

}  // namespace

}  // namespace tensorwire::ibverbs

namespace tw = tensorwire::ibverbs;

TENSORWIRE_VERB ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return tw::guarded(ENOMEM, [&]() -> ibv_pd* {
    tw::Context& opened = tw::of(context);
    auto pd = std::make_unique<tw::Pd>();
    pd->context = context;
    pd->id = opened.hca->create_pd();
    pd->handle = pd->id;
    const std::lock_guard lock(opened.objects_mutex);
    opened.pds.insert(pd.get());
    return pd.release();
  });
}

TENSORWIRE_VERB int ibv_dealloc_pd(ibv_pd* pd) {
  tw::Context& context = tw::of(pd->context);
  if (const int result = context.hca->destroy_pd(tw::of(pd).id); result != 0) return result;
  const std::lock_guard lock(context.objects_mutex);
  context.pds.erase(&tw::of(pd));
  delete &tw::of(pd);
  return 0;
}

TENSORWIRE_VERB ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova,
                                         unsigned access) {
  return tw::guarded(ENOMEM, [&] { return tw::register_region(pd, addr, length, iova, access); });
}

TENSORWIRE_VERB ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, int access) {
  return ibv_reg_mr_iova2(pd, addr, length, iova, static_cast<unsigned>(access));
}

TENSORWIRE_VERB ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, std::size_t length, int access) {
  return ibv_reg_mr_iova2(pd, addr, length, reinterpret_cast<std::uint64_t>(addr), static_cast<unsigned>(access));
}

TENSORWIRE_VERB ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                                          int fd, int access) {
  return tw::guarded(ENOMEM,
                     [&] { return tw::register_dmabuf(pd, offset, length, iova, fd, static_cast<unsigned>(access)); });
}

TENSORWIRE_VERB int ibv_dereg_mr(ibv_mr* mr) {
  tw::Context& context = tw::of(mr->context);
  if (const int result = context.hca->deregister_memory(mr->lkey); result != 0) return result;
  const std::lock_guard lock(context.objects_mutex);
  context.mrs.erase(&tw::of(mr));
  delete &tw::of(mr);
  return 0;
}
