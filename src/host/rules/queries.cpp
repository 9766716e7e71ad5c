#include "host/rules/queries.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "host/parse/text.hpp"

namespace tensorwire::host {

HcaFilter::HcaFilter(const Setting* setting) {
  if (setting == nullptr) return;
  std::string_view list = setting->value;
  if (list.starts_with('^')) {
    excludes_ = true;
    list.remove_prefix(1);
  }
  if (list.starts_with('=')) {
    exact_ = true;
    list.remove_prefix(1);
  }
  for (const std::string_view part : split(list, ',')) {
    if (trimmed(part).empty()) continue;
    const auto colon = part.find(':');
    names_.emplace_back(trimmed(part.substr(0, colon)));
    ports_.push_back(colon == std::string_view::npos ? -1 : leading_number(part.substr(colon + 1)).value_or(-1));
  }
}

bool HcaFilter::fits(std::string_view device, unsigned port) const {
  if (names_.empty()) return true;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const bool named = exact_ ? device == names_[i] : device.starts_with(names_[i]);
    if (named && (ports_[i] < 0 || ports_[i] == static_cast<int>(port))) return !excludes_;
  }
  return excludes_;
}

std::vector<PortView> all_ports(const Host& host) {
  std::vector<PortView> views;
  if (!host.rdma) return views;
  for (const RdmaDevice& device : *host.rdma) {
    for (const RdmaPort& port : device.ports) views.push_back({&device, &port, host.netdev(netdev_of(port))});
  }
  return views;
}

std::vector<PortView> roce_ports(const Host& host) {
  const HcaFilter filter{host.process.setting("NCCL_IB_HCA")};
  std::vector<PortView> views = all_ports(host);
  std::erase_if(views, [&filter](const PortView& view) {
    return !view.port->is_roce() || !view.port->is_active() || !filter.fits(view.device->name, view.port->number);
  });
  return views;
}

std::vector<PortView> qos_ports(const Host& host) {
  std::vector<PortView> views;
  for (const PortView& view : roce_ports(host)) {
    const bool seen = std::ranges::find(views, view.netdev, &PortView::netdev) != views.end();
    if (view.netdev != nullptr && !view.is_software() && !view.netdev->is_virtual_function && !seen)
      views.push_back(view);
  }
  return views;
}

const Gid* best_gid(const RdmaPort& port) {
  const Gid* best = nullptr;
  for (const Gid& gid : *port.gids) {
    if (gid.is_usable() && (best == nullptr || (gid.address.is_ipv4() && !best->address.is_ipv4()))) best = &gid;
  }
  return best;
}

std::optional<Marking> marking_of(const Host& host, const RdmaPort& port) {
  if (port.forced_traffic_class && *port.forced_traffic_class) {
    const unsigned tos = **port.forced_traffic_class;
    return Marking{tos, fmt::format("{}: Global tclass={}", port.forced_traffic_class.where(), tos)};
  }
  if (const Setting* setting = host.process.setting("NCCL_IB_TC")) {
    return Marking{c_number(setting->value).value_or(0), shown("NCCL_IB_TC", *setting)};
  }
  if (!host.process.is_job()) return std::nullopt;
  return Marking{0, "NCCL_IB_TC is not set: NCCL's default is 0"};
}

std::optional<unsigned> priority_of(const Netdev& netdev, const Marking& marking) {
  if (!netdev.qos.trust) return std::nullopt;
  if (*netdev.qos.trust == Trust::kPcp) return 0;  // without a VLAN tag there is no priority to trust
  if (!netdev.qos.priority_of_dscp || marking.dscp() >= kDscps) return std::nullopt;
  return (*netdev.qos.priority_of_dscp)[marking.dscp()];
}

CongestionCounters congestion_counters(const RdmaPort& port) {
  const auto first = [&port](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (const auto value = counter(port.counters, name)) return value;
    }
    return std::optional<std::uint64_t>{};
  };
  return {first({"np_ecn_marked_roce_packets", "RxECNMrkd", "rx_ecn_marked_pkts"}),
          first({"np_cnp_sent", "cnpSent", "tx_cnp_pkts"}), first({"rp_cnp_handled", "cnpHandled"}),
          first({"rp_cnp_ignored", "cnpIgnored"})};
}

std::string meeting_interface(const Host& host) {
  for (const Route& route : host.routes.value_or({})) {
    if (route.length == 0) return route.netdev;
  }
  return "IFACE";
}

unsigned main_priority(const PrioritySet& priorities) {
  constexpr unsigned kUsual = 3;
  for (unsigned i = 0; i < kPriorities && !priorities.test(kUsual); ++i) {
    if (priorities.test(i)) return i;
  }
  return kUsual;
}

std::optional<unsigned> c_number(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with("0x") || text.starts_with("0X")) return number_in<unsigned>(text.substr(2), 16);
  return number_in<unsigned>(text, text.size() > 1 && text[0] == '0' ? 8 : 10);
}

std::string shown(std::string_view name, const Setting& setting) {
  return fmt::format("{}={} ({})", name, setting.value, setting.where);
}

std::string shown(const PrioritySet& priorities) {
  std::vector<std::string> names;
  for (unsigned i = 0; i < kPriorities; ++i) {
    if (priorities[i]) names.push_back(std::to_string(i));
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace tensorwire::host
