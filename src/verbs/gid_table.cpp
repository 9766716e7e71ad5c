// Reading the GID table of a port: by ibv_query_gid_ex where the library and kernel have it, else by ibv_query_gid and
// sysfs.
#include <fmt/format.h>
#include <net/if.h>

#include <cerrno>
#include <cstring>

#include "verbs/context.hpp"
#include "verbs/sysfs.hpp"

namespace tensorwire::verbs {

namespace {

GidType type_from_verbs(std::uint32_t type) noexcept {
  switch (type) {
    case IBV_GID_TYPE_IB:
      return GidType::kInfiniband;
    case IBV_GID_TYPE_ROCE_V1:
      return GidType::kRoceV1;
    case IBV_GID_TYPE_ROCE_V2:
      return GidType::kRoceV2;
    default:
      return GidType::kUnknown;
  }
}

/// The kernel's words for a type; on an Ethernet port its "IB/RoCE v1" means RoCE v1.
GidType type_from_sysfs(const std::optional<std::string>& text) {
  if (!text) return GidType::kUnknown;
  if (text->starts_with("RoCE v2")) return GidType::kRoceV2;
  if (text->find("RoCE v1") != std::string::npos) return GidType::kRoceV1;
  return GidType::kUnknown;
}

Gid from_verbs(const ibv_gid& raw) noexcept {
  Gid gid;
  std::memcpy(gid.bytes.data(), raw.raw, gid.bytes.size());
  return gid;
}

std::string netdev_name(std::uint32_t interface_index) {
  char name[IF_NAMESIZE] = {};
  return interface_index != 0 && if_indextoname(interface_index, name) != nullptr ? name : "";
}

/// Returns 0, ENODATA for an empty index, or an errno that means the call itself is not there.
int read_extended(const Library& library, ibv_context* context, std::uint8_t port, int index, GidFacts& facts) {
  if (library.call().query_gid_ex == nullptr) return EOPNOTSUPP;
  ibv_gid_entry entry{};
  const int error =
      library.call().query_gid_ex(context, port, static_cast<std::uint32_t>(index), &entry, 0, sizeof entry);
  if (error != 0) return error > 0 ? error : errno;
  facts = {index, from_verbs(entry.gid), type_from_verbs(entry.gid_type), netdev_name(entry.ndev_ifindex)};
  return 0;
}

bool read_plain(const Library& library, ibv_context* context, std::uint8_t port, int index, GidFacts& facts) {
  ibv_gid raw{};
  if (library.call().query_gid(context, port, index, &raw) != 0) return false;
  const char* device = library.call().get_device_name(context->device);
  facts = {index, from_verbs(raw),
           type_from_sysfs(read_port_attribute(device, port, fmt::format("gid_attrs/types/{}", index))),
           read_port_attribute(device, port, fmt::format("gid_attrs/ndevs/{}", index)).value_or("")};
  return true;
}

}  // namespace

std::vector<GidFacts> read_gid_table(const Library& library, ibv_context* context, std::uint8_t port,
                                     int table_length) {
  std::vector<GidFacts> table;
  for (int index = 0; index < table_length; ++index) {
    GidFacts facts;
    const int error = read_extended(library, context, port, index, facts);
    if (error == ENODATA) continue;
    if (error != 0 && !read_plain(library, context, port, index, facts)) continue;
    if (!facts.gid.is_zero()) table.push_back(std::move(facts));
  }
  return table;
}

}  // namespace tensorwire::verbs
