#include "host/nccl_env.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "host/rules/queries.hpp"

namespace tensorwire::host {
namespace {

/// A port that data can go through, with what decides about it.
struct Candidate {
  PortView view;
  const Gid* gid = nullptr;          ///< the RoCE v2 entry with a routable address, IPv4 before IPv6
  std::optional<Distance> distance;  ///< to the nearest GPU, where it was measured
};

std::optional<Distance> nearest_gpu(const Host& host, const RdmaDevice& device) {
  std::optional<Distance> nearest;
  const PciDevice* const nic = device.pci_address ? host.nic(*device.pci_address) : nullptr;
  if (nic == nullptr) return nearest;
  for (const Gpu& gpu : host.gpus) {
    const auto found = distance(*nic, gpu.pci);
    if (found && (!nearest || *found < *nearest)) nearest = *found;
  }
  return nearest;
}

std::string name_of(const Candidate& candidate) {
  return fmt::format("{}:{}", candidate.view.device->name, candidate.view.port->number);
}

/// Ports of Ethernet that are up and have an address, the nearest to a GPU first; where distances are known, those that
/// a GPU is near to.
std::vector<Candidate> choose_ports(const Host& host, std::vector<std::string>& remarks) {
  std::vector<Candidate> all;
  for (const PortView& view : all_ports(host)) {
    if (!view.port->is_roce() || !view.port->is_active()) continue;
    const Candidate candidate{view, view.port->gids ? best_gid(*view.port) : nullptr, nearest_gpu(host, *view.device)};
    if (candidate.gid == nullptr) {
      remarks.push_back(fmt::format("{} is left out: its GID table has no RoCE v2 entry with a routable address",
                                    name_of(candidate)));
    } else {
      all.push_back(candidate);
    }
  }
  const auto is_near = [](const Candidate& candidate) {
    return candidate.distance && *candidate.distance <= Distance::kPhb;
  };
  if (std::ranges::any_of(all, is_near)) {
    std::erase_if(all, [&](const Candidate& candidate) {
      if (is_near(candidate) || !candidate.distance) return false;
      remarks.push_back(fmt::format("{} is left out: {} from the nearest GPU, and others are nearer",
                                    name_of(candidate), to_string(*candidate.distance)));
      return true;
    });
  }
  // Those of unknown distance come last; equals stay in the order of their names.
  std::ranges::stable_sort(all, {}, [](const Candidate& candidate) {
    return candidate.distance ? static_cast<int>(*candidate.distance) : static_cast<int>(Distance::kSys) + 1;
  });
  return all;
}

void add_ports(const std::vector<Candidate>& ports, std::vector<EnvironmentLine>& lines) {
  std::string list;
  const bool measured = std::ranges::any_of(ports, [](const Candidate& port) { return port.distance.has_value(); });
  std::string reason = measured && ports.size() > 1 ? "active RoCE ports with an address, the nearest to a GPU first"
                                                    : "active RoCE ports with an address";
  for (const Candidate& port : ports) {
    list += (list.empty() ? "=" : ",") + name_of(port);
    reason += fmt::format("; {} to its GPU: {}", port.view.device->name,
                          port.distance ? to_string(*port.distance) : "not known");
  }
  lines.push_back({"UCX_NET_DEVICES", list.substr(1), reason});
  lines.push_back({"NCCL_IB_HCA", list, reason + " ('=': these names exactly)"});
}

void add_gid(const std::vector<Candidate>& ports, NcclEnvironment& environment) {
  const Gid& first = *ports.front().gid;
  const bool all_ipv4 = std::ranges::all_of(ports, [](const Candidate& port) { return port.gid->address.is_ipv4(); });
  const bool same = std::ranges::all_of(ports, [&](const Candidate& port) { return port.gid->index == first.index; });
  if (!all_ipv4) {
    environment.lines.push_back(
        {"NCCL_IB_ADDR_FAMILY", "AF_INET6",
         "there is a port with IPv6 addresses only; NCCL looks for IPv4 and would stay on fe80::"});
  }
  if (same) {
    environment.lines.push_back({"NCCL_IB_GID_INDEX", fmt::to_string(first.index),
                                 fmt::format("{}/gids/{}: {}, RoCE v2, at this index on every port",
                                             ports.front().view.port->path, first.index, to_string(first.address))});
    environment.remarks.emplace_back(
        "NCCL 2.21 and later find the GID by themselves: there NCCL_IB_GID_INDEX is better left out, for tables are "
        "built anew "
        "when links or addresses change");
    return;
  }
  std::string where;
  for (const Candidate& port : ports)
    where += fmt::format("{}{}: {}", where.empty() ? "" : ", ", name_of(port), port.gid->index);
  environment.remarks.push_back("NCCL_IB_GID_INDEX is left out: no index is right on every port (" + where + ")");
}

/// What the interface does with it, for the reason.
std::string rides_in(const Candidate& port, unsigned tos) {
  if (port.view.netdev == nullptr) return {};
  const auto priority = priority_of(*port.view.netdev, {tos, {}});
  if (!priority) return {};
  const auto& pfc = port.view.netdev->qos.pfc;
  const char* const how = !pfc ? "" : pfc->test(*priority) ? ", lossless" : ", NOT lossless";
  return fmt::format("; {}: priority {}{}", port.view.netdev->name, *priority, how);
}

void add_traffic_class(const std::vector<Candidate>& ports, unsigned dscp, std::vector<EnvironmentLine>& lines) {
  const unsigned tos = dscp << 2;
  std::string reason = fmt::format("DSCP {} in the upper six bits of the traffic class", dscp);
  for (const Candidate& port : ports) reason += rides_in(port, tos);
  lines.push_back({"NCCL_IB_TC", fmt::to_string(tos), reason});
  lines.push_back({"UCX_IB_TRAFFIC_CLASS", fmt::to_string(tos), "the same for UCX"});
}

/// NCCL's own limit is PXB; a level is worth printing where a distance was measured.
void add_gpudirect(const std::vector<Candidate>& ports, NcclEnvironment& environment) {
  std::optional<Distance> farthest;
  for (const Candidate& port : ports) {
    if (port.distance && (!farthest || *port.distance > *farthest)) farthest = port.distance;
  }
  if (!farthest) {
    environment.remarks.emplace_back(
        "NCCL_NET_GDR_LEVEL is left out: no distance between a GPU and a NIC was measured");
  } else if (*farthest <= Distance::kPxb) {
    environment.lines.push_back({"NCCL_NET_GDR_LEVEL", "PXB",
                                 fmt::format("the farthest of these NICs is {} from its GPU", to_string(*farthest))});
  } else {
    environment.remarks.push_back(
        fmt::format("NCCL_NET_GDR_LEVEL is left out: a NIC is {} from its GPU; a higher level would only permit the "
                    "slow way. Use the NIC that "
                    "is nearer, or put them under one switch",
                    to_string(*farthest)));
  }
}

/// Rendezvous and control traffic: an interface that is up, with the default route or a subnet, without RDMA first.
void add_socket_interface(const Host& host, std::vector<EnvironmentLine>& lines) {
  if (!host.netdevs) return;
  const Netdev* best = nullptr;
  for (const Netdev& netdev : *host.netdevs) {
    const bool has_subnet =
        std::ranges::any_of(host.subnets, [&](const Subnet& subnet) { return subnet.netdev == netdev.name; });
    if (netdev.name == "lo" || !netdev.state.is("up") || !has_subnet) continue;
    if (best == nullptr || (best->has_rdma && !netdev.has_rdma)) best = &netdev;
  }
  if (best == nullptr) return;
  lines.push_back({"NCCL_SOCKET_IFNAME", "=" + best->name,
                   best->has_rdma ? "up, with a subnet; there is no interface without RDMA for the rendezvous"
                                  : "up, with a subnet, and not one of the RDMA ports: for the rendezvous"});
}

void compare_with_now(const Host& host, NcclEnvironment& environment) {
  for (const EnvironmentLine& line : environment.lines) {
    const Setting* const setting = host.process.setting(line.name);
    if (setting == nullptr || setting->value == line.value) continue;
    environment.remarks.push_back(fmt::format("now {}={} ({})", line.name, setting->value, setting->where));
  }
}

void say(std::string& text, const char* what, const std::vector<LogLine>& lines) {
  constexpr std::size_t kShown = 3;
  if (lines.empty()) return;
  text += fmt::format("{} ({} {})\n", what, lines.size(), lines.size() == 1 ? "line" : "lines");
  for (std::size_t i = 0; i < std::min(lines.size(), kShown); ++i) {
    text += fmt::format("  {}: {}\n", lines[i].number, lines[i].text);
  }
  if (lines.size() > kShown) text += fmt::format("  ... until line {}\n", lines.back().number);
}

void say_channels(std::string& text, const char* what, const NcclLog& log, bool gdr) {
  constexpr std::size_t kShown = 64;
  const auto count = static_cast<std::size_t>(std::ranges::count(log.channels, gdr, &NetChannel::gdr));
  if (count == 0) return;
  text += fmt::format("{} ({} {})\n", what, count, count == 1 ? "line" : "lines");
  std::size_t shown = 0;
  for (const NetChannel& channel : log.channels) {
    if (channel.gdr != gdr || ++shown > kShown) continue;
    text += fmt::format("  {}: channel {}, rank {} -> {} ({}), NET/{}\n", channel.line, channel.channel, channel.from,
                        channel.to, channel.sends ? "send" : "receive", channel.network);
  }
  if (count > kShown) text += fmt::format("  ... and {} more (--json has all)\n", count - kShown);
}

/// Values that are copied from host to host, and what is wrong with that.
struct Habit {
  std::string_view variable, why;
};
constexpr Habit kHabits[] = {
    {"NCCL_NET_GDR_LEVEL", "it permits GPUDirect over any path up to that; only a measured distance makes it right"},
    {"NCCL_IB_GID_INDEX", "an index is right on one table, and tables differ between NICs and change with links"},
    {"NCCL_IB_SL", "it chooses a priority only where ports trust PCP; by DSCP, NCCL_IB_TC does"},
    {"NCCL_P2P_LEVEL", "it permits peer-to-peer over any path up to that, as slow as it may be"},
    {"NCCL_IB_TIMEOUT", "a longer one hides losses instead of mending them"},
    {"NCCL_IB_RETRY_CNT", "more of them hide losses instead of mending them"},
    {"UCX_IB_GID_INDEX", "an index is right on one table, and UCX finds the entry by itself"},
};

/// Those of them that are set now and do not follow from what was found here.
void warn_of_habits(const Host& host, NcclEnvironment& environment) {
  for (const auto& [variable, why] : kHabits) {
    const Setting* const setting = host.process.setting(variable);
    if (setting == nullptr || std::ranges::count(environment.lines, variable, &EnvironmentLine::name) != 0) continue;
    environment.remarks.push_back(
        fmt::format("habit, not fact: {}={} ({}): {}", variable, setting->value, setting->where, why));
  }
}

}  // namespace

NcclEnvironment nccl_environment(const Host& host, unsigned dscp) {
  NcclEnvironment environment;
  const auto ports = choose_ports(host, environment.remarks);
  if (ports.empty()) {
    environment.remarks.emplace_back("no RoCE port can be used: NCCL will take sockets (tensorwire doctor says more)");
  } else {
    environment.lines.push_back({"NCCL_IB_DISABLE", "0", "there are RoCE ports; 0 is the default"});
    add_ports(ports, environment.lines);
    add_gid(ports, environment);
    add_traffic_class(ports, dscp, environment.lines);
    add_gpudirect(ports, environment);
  }
  add_socket_interface(host, environment.lines);
  compare_with_now(host, environment);
  warn_of_habits(host, environment);
  return environment;
}

std::string shell_text(const NcclEnvironment& environment) {
  std::string text;
  for (const EnvironmentLine& line : environment.lines) {
    text += fmt::format("export {}={}  # {}\n", line.name, line.value, line.reason);
  }
  for (const std::string& remark : environment.remarks) text += fmt::format("# {}\n", remark);
  return text;
}

std::string json_text(const NcclEnvironment& environment) {
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  for (const EnvironmentLine& line : environment.lines) {
    variables[line.name] = {{"value", line.value}, {"reason", line.reason}};
  }
  return nlohmann::ordered_json{{"environment", std::move(variables)}, {"remarks", environment.remarks}}.dump(2) + "\n";
}

std::string what_happened(const NcclLog& log) {
  std::string text = fmt::format("{}: NCCL {}\n", log.path, log.version.empty() ? "of unknown version" : log.version);
  say(text, "network chosen", log.networks);
  say(text, "no RDMA device found", log.without_device);
  say(text, "libibverbs was not found", log.without_library);
  say_channels(text, "channels through host memory (no GDRDMA)", log, false);
  say_channels(text, "channels from GPU memory (GDRDMA)", log, true);
  say(text, "GPUDirect refused", log.gdr_disabled);
  say(text, "provider and kernel do not fit", log.wrong_abi);
  say(text, "memory could not be registered", log.registration);
  say(text, "a port went down", log.port_errors);
  if (log.networks.empty() && log.without_device.empty()) {
    text +=
        "it does not say which network was chosen: NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,ENV,NET make it do so\n";
  } else if (log.channels.empty()) {
    text += "it names no channel between hosts: all ranks are on one, or NCCL_DEBUG_SUBSYS leaves out INIT and NET\n";
  }
  return text;
}

std::string what_happened_json(const NcclLog& log) {
  using nlohmann::ordered_json;
  const auto lines = [](const std::vector<LogLine>& all) {
    ordered_json list = ordered_json::array();
    for (const LogLine& line : all) list.push_back({{"line", line.number}, {"text", line.text}});
    return list;
  };
  ordered_json channels = ordered_json::array();
  for (const NetChannel& channel : log.channels) {
    channels.push_back({{"line", channel.line},
                        {"channel", channel.channel},
                        {"from", channel.from},
                        {"to", channel.to},
                        {"direction", channel.sends ? "send" : "receive"},
                        {"network", channel.network},
                        {"gdrdma", channel.gdr}});
  }
  return ordered_json{{"log", log.path},
                      {"version", log.version},
                      {"networks", lines(log.networks)},
                      {"no_rdma_device", lines(log.without_device)},
                      {"no_libibverbs", lines(log.without_library)},
                      {"gdr_refused", lines(log.gdr_disabled)},
                      {"channels", std::move(channels)}}
             .dump(2) +
         "\n";
}

}  // namespace tensorwire::host
