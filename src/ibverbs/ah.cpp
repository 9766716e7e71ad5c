// Address handles: where a datagram goes, resolved once.
#include <endian.h>

#include <cstring>

#include "ibverbs/export.hpp"
#include "ibverbs/objects.hpp"
#include "ibverbs/operations.hpp"
#include "wire/network_header.hpp"

namespace tensorwire::ibverbs {

namespace {

constexpr std::uint8_t kOnlyPort = 1;

ibv_ah* create(ibv_pd* pd, const ibv_ah_attr& wanted) {
  // On RoCE every address has a GID; without one there is nothing to send to.
  if (wanted.port_num != kOnlyPort || wanted.is_global == 0) return fail<ibv_ah>(EINVAL);
  Context& opened = of(pd->context);
  auto ah = std::make_unique<AddressHandle>();
  ah->context = pd->context;
  ah->pd = pd;
  ah->address.av = address_vector(wanted);
  if (const int result = opened.hca->resolve_datagram(ah->address); result != 0) return fail<ibv_ah>(result);
  const std::lock_guard lock(opened.objects_mutex);
  opened.ahs.insert(ah.get());
  return ah.release();
}

/// The index of the RoCE v2 entry of this GID; -1: none.
int gid_index(const Context& context, const wire::Gid& gid) {
  const auto table = context.hca->gid_table();
  for (std::size_t index = 0; index < table.size(); ++index) {
    if (table[index].usable && table[index].gid == gid) return static_cast<int>(index);
  }
  return -1;
}

/// The address of who sent the datagram that `wc` and the 40 bytes before it tell of.
int reply_address(ibv_context* context, std::uint8_t port, const ibv_wc& wc, const ibv_grh* grh, ibv_ah_attr& to) {
  if (port != kOnlyPort || grh == nullptr || (wc.wc_flags & IBV_WC_GRH) == 0) return EINVAL;
  std::array<std::byte, wire::kNetworkHeaderBytes> bytes;
  static_assert(sizeof(ibv_grh) == wire::kNetworkHeaderBytes);
  std::memcpy(bytes.data(), grh, bytes.size());
  const auto header = wire::parse_network_header(bytes);
  if (!header) return EINVAL;
  const int index = gid_index(of(context), header->destination);
  if (index < 0) return EINVAL;
  to = {};
  std::memcpy(to.grh.dgid.raw, header->source.bytes.data(), sizeof to.grh.dgid.raw);
  to.grh.sgid_index = static_cast<std::uint8_t>(index);
  to.grh.hop_limit = header->hop_limit;
  to.grh.traffic_class = header->traffic_class;
  to.grh.flow_label = header->flow_label;
  to.is_global = 1;
  to.sl = wc.sl;
  to.port_num = port;
  return 0;
}

}  // namespace

}  // namespace tensorwire::ibverbs

namespace tw = tensorwire::ibverbs;

TENSORWIRE_VERB ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return tw::guarded(ENOMEM, [&] { return tw::create(pd, *attr); });
}

/// Returns 0, or -1 and errno.
TENSORWIRE_VERB int ibv_init_ah_from_wc(ibv_context* context, std::uint8_t port_num, ibv_wc* wc, ibv_grh* grh,
                                        ibv_ah_attr* ah_attr) {
  try {
    const int result = tw::reply_address(context, port_num, *wc, grh, *ah_attr);
    return result == 0 ? 0 : tw::minus_one(result);
  } catch (const std::exception&) {
    return tw::minus_one(ENOMEM);
  }
}

TENSORWIRE_VERB ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, std::uint8_t port_num) {
  ibv_ah_attr attributes{};
  if (ibv_init_ah_from_wc(pd->context, port_num, wc, grh, &attributes) != 0) return nullptr;
  return ibv_create_ah(pd, &attributes);
}

TENSORWIRE_VERB int ibv_destroy_ah(ibv_ah* ah) {
  tw::Context& context = tw::of(ah->context);
  const std::lock_guard lock(context.objects_mutex);
  context.ahs.erase(&tw::of(ah));
  delete &tw::of(ah);
  return 0;
}
