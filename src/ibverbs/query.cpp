// What a program can ask about device, port, P_Key and GID table.
#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ibverbs/export.hpp"
#include "ibverbs/objects.hpp"
#include "ibverbs/operations.hpp"
#include "softhca/link_rate.hpp"

namespace tensorwire::ibverbs {

namespace {

constexpr std::uint8_t kPort = 1;               // a device has one port
constexpr std::uint16_t kDefaultPkey = 0xffff;  // full membership; the only entry of the table, as on every RoCE port
constexpr std::uint32_t kNoVendor = 0xffffff;   // no company registered an OUI for it
constexpr std::uint64_t kPageSizes = ~std::uint64_t{0xfff};  // 4 KiB and every larger power of two

int limit(std::uint64_t value) noexcept { return static_cast<int>(std::min<std::uint64_t>(value, INT32_MAX)); }

ibv_device_attr device_attributes(Context& context) noexcept {
  const softhca::DeviceLimits limits = context.hca->limits();
  ibv_device_attr attributes{};
  std::strncpy(attributes.fw_ver, TENSORWIRE_VERSION, sizeof attributes.fw_ver - 1);
  attributes.node_guid = context.device->info.guid;
  attributes.sys_image_guid = context.device->info.guid;
  attributes.max_mr_size = limits.max_mr_size;
  attributes.page_size_cap = kPageSizes;
  attributes.vendor_id = kNoVendor;
  attributes.max_qp = limit(limits.max_qp);
  attributes.max_qp_wr = limit(limits.max_qp_wr);
  attributes.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID |
                                IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
                                IBV_DEVICE_MEM_MGT_EXTENSIONS;
  attributes.max_sge = limit(limits.max_sge);
  attributes.max_cq = limit(limits.max_cq);
  attributes.max_cqe = limit(limits.max_cqe);
  attributes.max_mr = limit(limits.max_mr);
  attributes.max_mw = limit(limits.max_mw);
  attributes.max_pd = limit(limits.max_pd);
  attributes.max_ah = INT32_MAX;  // they are this process's memory and nothing else
  attributes.max_srq = limit(limits.max_srq);
  attributes.max_srq_wr = limit(limits.max_srq_wr);
  attributes.max_srq_sge = limit(limits.max_sge);
  attributes.max_qp_rd_atom = limit(limits.max_rd_atomic);
  attributes.max_qp_init_rd_atom = limit(limits.max_rd_atomic);
  attributes.max_res_rd_atom = limit(std::uint64_t{limits.max_rd_atomic} * limits.max_qp);
  // Executed with the CPU's own atomic instructions, but only that is promised which any HCA can keep.
  attributes.atomic_cap = IBV_ATOMIC_HCA;
  attributes.max_pkeys = 1;
  attributes.phys_port_cnt = 1;
  return attributes;
}

ibv_port_attr port_attributes(Context& context) {
  const softhca::PortInfo port = context.hca->port();
  const softhca::LinkRate& rate = softhca::link_rate(port.speed_mbps);
  ibv_port_attr attributes{};
  attributes.state = port.active ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attributes.max_mtu = static_cast<ibv_mtu>(port.max_mtu);
  attributes.active_mtu = static_cast<ibv_mtu>(port.active_mtu);
  attributes.gid_tbl_len = static_cast<int>(context.hca->gid_table().size());
  attributes.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  attributes.max_msg_sz = transport::kMaxMessageBytes;
  attributes.pkey_tbl_len = 1;
  attributes.max_vl_num = 1;
  attributes.active_width = rate.width;
  attributes.active_speed = rate.speed;
  attributes.phys_state = port.active ? 5 : 3;  // LinkUp, Disabled
  attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
  return attributes;
}

/// Copies what both sides know and zeroes the rest of what the caller has: it may be built against newer headers.
template <typename Struct>
void hand_out(const Struct& ours, void* theirs, std::size_t their_size) noexcept {
  std::memset(theirs, 0, their_size);
  std::memcpy(theirs, &ours, std::min(sizeof ours, their_size));
}

ibv_gid_entry gid_entry(const Context& context, const softhca::GidEntry& gid, std::uint32_t index) noexcept {
  ibv_gid_entry entry{};
  std::memcpy(entry.gid.raw, gid.gid.bytes.data(), sizeof entry.gid.raw);
  entry.gid_index = index;
  entry.port_num = kPort;
  entry.gid_type = gid.roce_v2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
  entry.ndev_ifindex = static_cast<std::uint32_t>(context.device->info.interface_index);
  return entry;
}

/// Runs a query whose set-up calls may throw; 0 or an errno.
template <typename Function>
int answered(Function&& function) noexcept {
  try {
    return function();
  } catch (const std::exception& error) {
    log_warn(error.what());
    return ENOMEM;
  }
}

}  // namespace

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes, std::size_t size) noexcept {
  if (port != kPort) return EINVAL;
  return answered([&] {
    hand_out(port_attributes(of(context)), attributes, size);
    return 0;
  });
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attributes,
                    std::size_t size) noexcept {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  if (size < sizeof(ibv_device_attr)) return EINVAL;
  ibv_device_attr_ex ours{};
  ours.orig_attr = device_attributes(of(context));
  ours.phys_port_cnt_ex = ours.orig_attr.phys_port_cnt;
  hand_out(ours, attributes, size);
  return 0;
}

int query_gid_type(ibv_context* context, std::uint8_t port, unsigned index, unsigned* type) noexcept {
  const int result = answered([&] {
    const auto table = of(context).hca->gid_table();
    if (port != kPort || index >= table.size()) return EINVAL;
    *type = table[index].roce_v2 ? 1 : 0;
    return 0;
  });
  return result == 0 ? 0 : minus_one(result);
}

}  // namespace tensorwire::ibverbs

namespace tw = tensorwire::ibverbs;

TENSORWIRE_VERB int ibv_query_device(ibv_context* context, ibv_device_attr* device_attr) {
  *device_attr = tw::device_attributes(tw::of(context));
  return 0;
}

// The symbol that programs older than the extended struct call: theirs ends with `flags`.
#undef ibv_query_port
TENSORWIRE_VERB int ibv_query_port(ibv_context* context, std::uint8_t port_num, _compat_ibv_port_attr* port_attr) {
  return tw::query_port(context, port_num, reinterpret_cast<ibv_port_attr*>(port_attr),
                        offsetof(ibv_port_attr, flags) + sizeof(ibv_port_attr::flags));
}

TENSORWIRE_VERB int ibv_query_pkey(ibv_context*, std::uint8_t port_num, int index, __be16* pkey) {
  if (port_num != tw::kPort || index != 0) return tw::minus_one(EINVAL);
  *pkey = htobe16(tw::kDefaultPkey);
  return 0;
}

TENSORWIRE_VERB int ibv_get_pkey_index(ibv_context*, std::uint8_t port_num, __be16 pkey) {
  if (port_num != tw::kPort || be16toh(pkey) != tw::kDefaultPkey) return tw::minus_one(EINVAL);
  return 0;
}

TENSORWIRE_VERB int ibv_query_gid(ibv_context* context, std::uint8_t port_num, int index, ibv_gid* gid) {
  const int result = tw::answered([&] {
    const auto table = tw::of(context).hca->gid_table();
    if (port_num != tw::kPort || index < 0 || static_cast<std::size_t>(index) >= table.size()) return EINVAL;
    std::memcpy(gid->raw, table[static_cast<std::size_t>(index)].gid.bytes.data(), sizeof gid->raw);
    return 0;
  });
  return result == 0 ? 0 : tw::minus_one(result);
}

TENSORWIRE_VERB int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port_num, std::uint32_t gid_index,
                                      ibv_gid_entry* entry, std::uint32_t flags, std::size_t entry_size) {
  if (flags != 0) return EOPNOTSUPP;
  return tw::answered([&] {
    const tw::Context& opened = tw::of(context);
    const auto table = opened.hca->gid_table();
    if (port_num != tw::kPort || gid_index >= table.size()) return EINVAL;
    if (table[gid_index].gid.is_zero()) return ENODATA;
    tw::hand_out(tw::gid_entry(opened, table[gid_index], gid_index), entry, entry_size);
    return 0;
  });
}

/// @return how many entries are not empty, or a negative errno (EINVAL: more than `max_entries`).
TENSORWIRE_VERB ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t max_entries,
                                             std::uint32_t flags, std::size_t entry_size) {
  if (flags != 0) return -EOPNOTSUPP;
  std::size_t count = 0;
  const int result = tw::answered([&] {
    const tw::Context& opened = tw::of(context);
    const auto table = opened.hca->gid_table();
    for (std::uint32_t index = 0; index < table.size(); ++index) {
      if (table[index].gid.is_zero()) continue;
      if (count == max_entries) return EINVAL;
      auto* place = reinterpret_cast<std::byte*>(entries) + count * entry_size;
      tw::hand_out(tw::gid_entry(opened, table[index], index), place, entry_size);
      ++count;
    }
    return 0;
  });
  return result == 0 ? static_cast<ssize_t>(count) : -result;
}
