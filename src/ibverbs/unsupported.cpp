// What this HCA has not. Every such call ends here with EOPNOTSUPP (null and errno where a pointer is returned) and
// says so once at log level info; nothing is half-done. The unset operations of verbs_context need no entry: the inline
// functions of verbs.h answer EOPNOTSUPP for them.
#include <fmt/format.h>

#include <mutex>
#include <set>
#include <string>

#include "ibverbs/export.hpp"
#include "ibverbs/objects.hpp"
#include "ibverbs/operations.hpp"

namespace tensorwire::ibverbs {

int not_supported(std::string_view feature) noexcept {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> said;
  if (log_enabled(LogLevel::info)) {
    try {
      const std::lock_guard lock(mutex);
      if (said.emplace(feature).second) log_info(fmt::format("the soft HCA does not support {}", feature));
    } catch (const std::exception&) {  // the answer matters more than the line
    }
  }
  return EOPNOTSUPP;
}

namespace {

// Pointers that verbs.h calls without a check.
int close_xrcd(ibv_xrcd*) noexcept { return not_supported("XRC"); }
/// Slots that programs of before 2006 called; kept filled so that a stray call is an error, not a crash.
void* obsolete() noexcept { return fail<void>(EOPNOTSUPP); }

int query_device(ibv_context* context, ibv_device_attr* attributes) noexcept {
  return ibv_query_device(context, attributes);
}
int query_port_compatible(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attributes) noexcept {
  return (ibv_query_port)(context, port, attributes);
}

}  // namespace

void set_unsupported_operations(Context& opened) noexcept {
  opened.close_xrcd = close_xrcd;
  ibv_context_ops& ops = opened.context.ops;
  ops._compat_query_device = query_device;
  ops._compat_query_port = query_port_compatible;
  for (auto* slot :
       {&ops._compat_alloc_pd,     &ops._compat_dealloc_pd, &ops._compat_reg_mr,     &ops._compat_rereg_mr,
        &ops._compat_dereg_mr,     &ops._compat_create_cq,  &ops._compat_cq_event,   &ops._compat_resize_cq,
        &ops._compat_destroy_cq,   &ops._compat_create_srq, &ops._compat_modify_srq, &ops._compat_query_srq,
        &ops._compat_destroy_srq,  &ops._compat_create_qp,  &ops._compat_query_qp,   &ops._compat_modify_qp,
        &ops._compat_destroy_qp,   &ops._compat_create_ah,  &ops._compat_destroy_ah, &ops._compat_attach_mcast,
        &ops._compat_detach_mcast, &ops._compat_async_event}) {
    *slot = obsolete;
  }
}

}  // namespace tensorwire::ibverbs

namespace tw = tensorwire::ibverbs;

TENSORWIRE_VERB int ibv_rereg_mr(ibv_mr*, int, ibv_pd*, void*, std::size_t, int) {
  errno = tw::not_supported("re-registration of memory");
  return IBV_REREG_MR_ERR_INPUT;  // the old region stays valid
}

/// rdma-core's providers ask this for the Ethernet address behind a GID; here UDP knows the way. Negative errno.
TENSORWIRE_VERB int ibv_resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr*, std::uint8_t*, std::uint16_t*) {
  return -tw::not_supported("resolution of Ethernet addresses");
}
TENSORWIRE_VERB int ibv_attach_mcast(ibv_qp*, const ibv_gid*, std::uint16_t) { return tw::not_supported("multicast"); }
TENSORWIRE_VERB int ibv_detach_mcast(ibv_qp*, const ibv_gid*, std::uint16_t) { return tw::not_supported("multicast"); }

// Enhanced connection establishment negotiates features between NICs of one vendor.
TENSORWIRE_VERB int ibv_set_ece(ibv_qp*, ibv_ece*) { return tw::not_supported("enhanced connection establishment"); }
TENSORWIRE_VERB int ibv_query_ece(ibv_qp*, ibv_ece*) { return tw::not_supported("enhanced connection establishment"); }

TENSORWIRE_VERB ibv_context* ibv_import_device(int) {
  return tw::fail<ibv_context>(tw::not_supported("objects shared between processes"));
}
TENSORWIRE_VERB ibv_pd* ibv_import_pd(ibv_context*, std::uint32_t) {
  return tw::fail<ibv_pd>(tw::not_supported("objects shared between processes"));
}
TENSORWIRE_VERB void ibv_unimport_pd(ibv_pd*) {}
TENSORWIRE_VERB ibv_mr* ibv_import_mr(ibv_pd*, std::uint32_t) {
  return tw::fail<ibv_mr>(tw::not_supported("objects shared between processes"));
}
TENSORWIRE_VERB void ibv_unimport_mr(ibv_mr*) {}
TENSORWIRE_VERB ibv_dm* ibv_import_dm(ibv_context*, std::uint32_t) {
  return tw::fail<ibv_dm>(tw::not_supported("objects shared between processes"));
}
TENSORWIRE_VERB void ibv_unimport_dm(ibv_dm*) {}
