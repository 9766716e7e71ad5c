#include "host/facts/host.hpp"

#include <algorithm>

namespace tensorwire::host {

namespace {

template <class Range, class Projection>
auto find_in(const Range& range, std::string_view wanted, Projection projection) -> decltype(&*range.begin()) {
  const auto found = std::ranges::find(range, wanted, projection);
  return found != range.end() ? &*found : nullptr;
}

}  // namespace

const Netdev* Host::netdev(std::string_view name) const {
  return netdevs ? find_in(*netdevs, name, &Netdev::name) : nullptr;
}

const PciDevice* Host::nic(std::string_view address) const { return find_in(nics, address, &PciDevice::address); }

const PciBridge* Host::bridge(std::string_view address) const { return find_in(bridges, address, &PciBridge::address); }

std::string netdev_of(const RdmaPort& port) {
  if (!port.gids) return {};
  for (const Gid& gid : *port.gids) {
    // A VLAN's GIDs stand in the same table; the port itself is the interface without one.
    if (gid.netdev && gid.netdev->find('.') == std::string::npos) return *gid.netdev;
  }
  return {};
}

std::string_view to_string(Tsa algorithm) noexcept {
  switch (algorithm) {
    case Tsa::kStrict:
      return "strict";
    case Tsa::kShaper:
      return "cbs";
    case Tsa::kEts:
      return "ets";
    case Tsa::kVendor:
      return "vendor";
  }
  return "?";
}

Fact<Distance> distance(const PciDevice& one, const PciDevice& other) {
  if (!one.path) return Fact<Distance>::unknown(one.path.why(), one.path.where());
  if (!other.path) return Fact<Distance>::unknown(other.path.why(), other.path.where());
  const std::string where = one.path.where() + " and " + other.path.where();
  const auto& a = one.path->bridges;
  const auto& b = other.path->bridges;
  const auto common = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  if (common > 0) {
    const bool one_switch = a.size() - common <= 1 && b.size() - common <= 1;
    return {one_switch ? Distance::kPix : Distance::kPxb, where};
  }
  if (one.path->root == other.path->root) return {Distance::kPhb, where};
  if (!one.numa_node || !other.numa_node) return Fact<Distance>::unknown("the NUMA node is not known", where);
  return {*one.numa_node == *other.numa_node ? Distance::kNode : Distance::kSys, where};
}

std::string_view to_string(Distance distance) noexcept {
  switch (distance) {
    case Distance::kPix:
      return "PIX";
    case Distance::kPxb:
      return "PXB";
    case Distance::kPhb:
      return "PHB";
    case Distance::kNode:
      return "NODE";
    case Distance::kSys:
      return "SYS";
  }
  return "?";
}

std::string_view to_string(NicFamily family) noexcept {
  switch (family) {
    case NicFamily::kMlx5:
      return "mlx5";
    case NicFamily::kMlx4:
      return "mlx4";
    case NicFamily::kBroadcom:
      return "bnxt_re";
    case NicFamily::kIntel:
      return "irdma";
    case NicFamily::kQlogic:
      return "qedr";
    case NicFamily::kPensando:
      return "ionic";
    case NicFamily::kEfa:
      return "efa";
    case NicFamily::kRxe:
      return "rxe";
    case NicFamily::kSiw:
      return "siw";
    case NicFamily::kUserSpace:
      return "user-space HCA";
    case NicFamily::kOther:
      break;
  }
  return "unknown";
}

std::optional<std::uint64_t> counter(const Fact<Counters>& counters, std::string_view name) {
  if (!counters) return std::nullopt;
  const auto found = counters->find(name);
  return found != counters->end() ? std::optional{found->second} : std::nullopt;
}

const Setting* Process::setting(std::string_view name) const {
  if (!settings) return nullptr;
  const auto found = settings->find(name);
  return found != settings->end() ? &found->second : nullptr;
}

bool Process::is_job() const {
  if (!settings) return false;
  return std::ranges::any_of(*settings, [](const auto& entry) {
    return entry.first.starts_with("NCCL_IB_") || entry.first.starts_with("NCCL_NET") ||
           entry.first.starts_with("UCX_IB_");
  });
}

}  // namespace tensorwire::host
