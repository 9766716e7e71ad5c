#include "host/compare/property.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <optional>
#include <set>

#include "host/rules/queries.hpp"
#include "host/rules/rails.hpp"

namespace tensorwire::host {

namespace {

/// Each value once, sorted; nothing where there is none.
std::optional<std::string> joined(const std::set<std::string>& values) {
  return values.empty() ? std::nullopt : std::optional{fmt::format("{}", fmt::join(values, "; "))};
}

/// `text_of(view)` of all ports in use; a port where it is not known is left out.
template <class TextOf>
std::optional<std::string> over_ports(const std::vector<PortView>& ports, TextOf text_of) {
  std::set<std::string> values;
  for (const PortView& view : ports) {
    if (std::optional<std::string> value = text_of(view)) values.insert(std::move(*value));
  }
  return joined(values);
}

std::string family_and_version(const Gid& gid) {
  const char* family = gid.address.is_ipv4() ? "IPv4" : gid.address.is_ipv6_link_local() ? "link-local" : "IPv6";
  return fmt::format("RoCE {} over {}", gid.is_v2() ? "v2" : "v1", family);
}

/// Of the entry that a job speaks from: the pinned one, else the one that NCCL finds.
std::optional<std::string> gids_in_use(const Host& host) {
  const Setting* pin = host.process.setting("NCCL_IB_GID_INDEX");
  constexpr unsigned kAutomatic = UINT_MAX;
  const unsigned index = pin != nullptr ? c_number(pin->value).value_or(kAutomatic) : kAutomatic;
  return over_ports(roce_ports(host), [&](const PortView& view) -> std::optional<std::string> {
    if (!view.port->gids) return std::nullopt;
    if (index == kAutomatic) {
      const Gid* best = best_gid(*view.port);
      return best != nullptr ? family_and_version(*best) : "none that is routable";
    }
    const auto gid = std::ranges::find(*view.port->gids, index, &Gid::index);
    if (gid == view.port->gids->end()) return fmt::format("an empty entry ({})", index);
    return gid->version ? std::optional{family_and_version(*gid)} : std::nullopt;
  });
}

std::optional<std::string> active_mtus(const Host& host) {
  return over_ports(roce_ports(host), [](const PortView& view) -> std::optional<std::string> {
    return view.port->active_mtu ? std::optional{std::to_string(*view.port->active_mtu)} : std::nullopt;
  });
}

std::optional<std::string> buffers(const Host& host) {
  return over_ports(qos_ports(host), [](const PortView& view) -> std::optional<std::string> {
    const auto& sizes = view.netdev->qos.buffer_bytes;
    return sizes ? std::optional{fmt::format("{}", fmt::join(*sizes, ","))} : std::nullopt;
  });
}

std::optional<std::string> parameters_of_dcqcn(const Host& host) {
  return over_ports(roce_ports(host), [](const PortView& view) -> std::optional<std::string> {
    if (!view.device->dcqcn || view.device->dcqcn->empty()) return std::nullopt;
    std::vector<std::string> parts;
    for (const auto& [name, value] : *view.device->dcqcn) parts.push_back(fmt::format("{}={}", name, value));
    return fmt::format("{}", fmt::join(parts, " "));
  });
}

std::optional<std::string> subnets(const Host& host) {
  std::set<std::string> values;
  for (const PortView& view : roce_ports(host)) {
    for (const Subnet& subnet : host.subnets) {
      if (view.netdev != nullptr && subnet.netdev == view.netdev->name) {
        values.insert(fmt::format("{}/{}", to_string(subnet.network), subnet.length));
      }
    }
  }
  return joined(values);
}

/// Hosts whose subnets are their own compare by the order of them.
std::optional<std::string> rail_order(const Host& host) {
  const std::vector<Rail> rails = rails_by_gpu(host);
  return rails.empty() ? std::nullopt : std::optional{fmt::format("{}", fmt::join(order_of(rails), " "))};
}

std::optional<std::string> mtus(const Host& host) {
  return over_ports(roce_ports(host), [](const PortView& view) -> std::optional<std::string> {
    if (view.netdev == nullptr || !view.netdev->mtu) return std::nullopt;
    return std::to_string(*view.netdev->mtu);
  });
}

std::optional<std::string> trusts(const Host& host) {
  return over_ports(qos_ports(host), [](const PortView& view) -> std::optional<std::string> {
    const auto& trust = view.netdev->qos.trust;
    if (!trust) return std::nullopt;
    return *trust == Trust::kDscp ? "DSCP" : "PCP";
  });
}

std::optional<std::string> lossless(const Host& host) {
  return over_ports(qos_ports(host), [](const PortView& view) -> std::optional<std::string> {
    const auto& pfc = view.netdev->qos.pfc;
    return pfc ? std::optional{shown(*pfc)} : std::nullopt;
  });
}

/// "0-23:0 24-31:3 ...": runs of DSCPs that lead to one priority.
std::string shown_map(const std::array<std::uint8_t, kDscps>& map) {
  std::string text;
  for (unsigned begin = 0; begin < kDscps;) {
    unsigned end = begin;
    while (end + 1 < kDscps && map[end + 1] == map[begin]) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : " ",
                        begin == end ? std::to_string(begin) : fmt::format("{}-{}", begin, end));
    text += fmt::format(":{}", map[begin]);
    begin = end + 1;
  }
  return text;
}

std::optional<std::string> dscp_maps(const Host& host) {
  return over_ports(qos_ports(host), [](const PortView& view) -> std::optional<std::string> {
    const auto& map = view.netdev->qos.priority_of_dscp;
    return map && view.netdev->qos.trust.is(Trust::kDscp) ? std::optional{shown_map(*map)} : std::nullopt;
  });
}

std::optional<std::string> cnp_dscps(const Host& host) {
  return over_ports(qos_ports(host), [](const PortView& view) -> std::optional<std::string> {
    const auto& dscp = view.netdev->qos.cnp_dscp;
    return dscp ? std::optional{std::to_string(*dscp)} : std::nullopt;
  });
}

std::optional<std::string> device_count(const Host& host) {
  if (!host.rdma) return std::nullopt;
  return fmt::format("{}, {} of them active", host.rdma->size(), roce_ports(host).size());
}

std::optional<std::string> device_kinds(const Host& host) {
  return over_ports(roce_ports(host), [](const PortView& view) -> std::optional<std::string> {
    return fmt::format("{} at {} Gb/s", to_string(view.device->family), view.port->rate_gbps.value_or(0));
  });
}

std::optional<std::string> firmwares(const Host& host) {
  return over_ports(roce_ports(host), [](const PortView& view) -> std::optional<std::string> {
    return view.device->firmware ? std::optional{*view.device->firmware} : std::nullopt;
  });
}

std::optional<std::string> kernel(const Host& host) { return host.kernel ? std::optional{*host.kernel} : std::nullopt; }

std::optional<std::string> gpu_driver(const Host& host) {
  return host.gpu_driver.version ? std::optional{*host.gpu_driver.version} : std::nullopt;
}

std::optional<std::string> nccl_library(const Host& host) {
  if (!host.process.libraries) return std::nullopt;
  std::set<std::string> found;
  for (const std::string& path : *host.process.libraries) {
    if (path.find("/libnccl.so") != std::string::npos) found.insert(path);
  }
  return joined(found);
}

struct Property {
  PropertyKind kind;
  std::optional<std::string> (*value)(const Host& host);
};

// clang-format off
constexpr std::array kProperties = {
    Property{{"addresses", Severity::kError, "queue pairs between IPv4 and IPv6 GIDs, or RoCE v1 and v2, cannot be connected (EINVAL)"}, gids_in_use},
    Property{{"MTU of RDMA packets", Severity::kError, "the larger packets end in a local access violation or IBV_WC_LOC_LEN_ERR since NCCL 2.20"}, active_mtus},
    Property{{"MTU", Severity::kError, "packets of the larger side are dropped, or fail with a local access violation since NCCL 2.20: set one MTU everywhere"}, mtus},
    Property{{"trust", Severity::kError, "packets ride in different priorities at different hosts"}, trusts},
    Property{{"lossless priorities", Severity::kError, "a class that is lossless at one end only is lossy"}, lossless},
    Property{{"DSCP to priority", Severity::kError, "the same DSCP leads to different priorities"}, dscp_maps},
    Property{{"DSCP of CNPs", Severity::kWarning, "congestion notifications ride in different classes"}, cnp_dscps},
    Property{{"receive buffers", Severity::kWarning, "PFC's thresholds follow from them"}, buffers},
    Property{{"DCQCN", Severity::kWarning, "hosts that slow down less than others take the rate of those"}, parameters_of_dcqcn},
    Property{{"RDMA devices", Severity::kError, "NCCL expects as many devices on every host (see NCCL_IGNORE_NET_MISMATCH)"}, device_count},
    Property{{"kind of device", Severity::kWarning, "the slowest device sets the pace, and families differ in GID tables and errors"}, device_kinds},
    Property{{"subnets", Severity::kInfo, "hosts in other subnets need routes between the RDMA interfaces"}, subnets},
    Property{{"rails in the order of GPUs", Severity::kWarning, "GPUs of the same number sit on different rails: their traffic crosses the fabric, or cannot"}, rail_order},
    Property{{"NIC firmware", Severity::kInfo, "differences in firmware explain differences in behaviour"}, firmwares},
    Property{{"kernel", Severity::kInfo, "differences in kernels explain differences in behaviour"}, kernel},
    Property{{"GPU driver", Severity::kWarning, "GPUDirect works differently in different drivers"}, gpu_driver},
    Property{{"NCCL library", Severity::kWarning, "ranks with different NCCLs hang or fail at the first collective"}, nccl_library},
};
constexpr PropertyKind kSetting{"setting", Severity::kWarning, "settings of NCCL and UCX must be equal on all ranks, unless they name something of the host"};
// clang-format on

}  // namespace

HostProperties properties_of(const Host& host) {
  HostProperties all;
  for (const Property& property : kProperties) {
    if (auto value = property.value(host)) all.values.emplace(property.kind.name, std::move(*value));
  }
  for (const auto& [name, setting] : host.process.settings.value_or({})) all.values.emplace(name, setting.value);
  return all;
}

const PropertyKind& kind_of(std::string_view name) {
  for (const Property& property : kProperties) {
    if (property.kind.name == name) return property.kind;
  }
  return kSetting;
}

}  // namespace tensorwire::host
