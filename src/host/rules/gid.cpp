// Which entry of a GID table a job uses, and whether packets with that source can be answered.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "host/rules/groups.hpp"
#include "host/rules/queries.hpp"

namespace tensorwire::host {

namespace {

/// Every library has its own variable for the same thing.
constexpr std::array kPins = {"NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX", "MC_GID_INDEX", "NVSHMEM_IB_GID_INDEX"};

std::string gid_text(const Gid& gid) {
  const char* version = !gid.version ? "of another network namespace" : gid.is_v2() ? "RoCE v2" : "RoCE v1";
  return fmt::format("{}: {}, {}", gid.index, to_string(gid.address), version);
}

std::vector<std::string> shown_table(const RdmaPort& port) {
  std::vector<std::string> lines;
  for (const Gid& gid : *port.gids) {
    if (lines.size() < 16) lines.push_back(port.path + "/gids/" + gid_text(gid));
  }
  if (lines.empty()) lines.push_back(port.path + "/gids: every entry is empty");
  return lines;
}

const Gid* entry_at(const RdmaPort& port, unsigned index) {
  const auto found = std::ranges::find(*port.gids, index, &Gid::index);
  return found != port.gids->end() ? &*found : nullptr;
}

bool is_foreign(const Gid& gid) { return !gid.version && gid.version.why().find("EINVAL") != std::string::npos; }

/// Calls `use` for each pinned index and each port that it is used on.
template <class Use>
void for_each_pin(const Host& host, Use use) {
  for (const char* name : kPins) {
    const Setting* setting = host.process.setting(name);
    const auto index = setting != nullptr ? c_number(setting->value) : std::nullopt;
    if (!index) continue;
    for (const PortView& view : roce_ports(host)) {
      if (view.port->gids) use(name, *setting, *index, view);
    }
  }
}

std::string pin_remedy(const char* name, const RdmaPort& port) {
  const Gid* best = best_gid(port);
  if (best == nullptr) return "give the interface an address first";
  if (std::string_view{name} == "NCCL_IB_GID_INDEX") {
    return fmt::format(
        "unset {}: NCCL then finds the entry by itself (here {}), on every device and after every change", name,
        best->index);
  }
  return fmt::format("{}={}", name, best->index);
}

void no_usable_gid(const Host& host, Judgement& judgement) {
  for (const PortView& view : roce_ports(host)) {
    const auto& gids = view.port->gids;
    if (!gids) {
      judgement.unknown("GID table of " + view.device->name, gids);
      continue;
    }
    const bool judged = std::ranges::all_of(*gids, [](const Gid& gid) { return gid.version.known(); });
    const bool link_local_v4 =
        std::ranges::any_of(*gids, [](const Gid& gid) { return gid.address.is_ipv4_link_local(); });
    if (!judged || link_local_v4 || best_gid(*view.port) != nullptr) continue;
    judgement.found(
        Confidence::kCertain, view.device->name,
        "no entry of the GID table is RoCE v2 with a routable address: the interface has no address, so that "
        "only link-local entries (or RoCE v1) are left",
        fmt::format("ip address add ADDRESS/LENGTH dev {}", view.netdev != nullptr ? view.netdev->name : "IFACE"),
        shown_table(*view.port));
  }
}

void pinned_to_v1(const Host& host, Judgement& judgement) {
  for_each_pin(host, [&](const char* name, const Setting& setting, unsigned index, const PortView& view) {
    const Gid* gid = entry_at(*view.port, index);
    if (gid == nullptr || !gid->version || gid->is_v2()) return;
    judgement.found(
        Confidence::kCertain, view.device->name,
        fmt::format("{} chooses entry {}, which is RoCE v1: those packets are not IP and no router forwards "
                    "them; a peer with RoCE v2 does not understand them",
                    name, index),
        pin_remedy(name, *view.port), {host::shown(name, setting), gid->version.where() + ": IB/RoCE v1"});
  });
}

void pinned_to_link_local(const Host& host, Judgement& judgement) {
  for_each_pin(host, [&](const char* name, const Setting& setting, unsigned index, const PortView& view) {
    const Gid* gid = entry_at(*view.port, index);
    if (gid == nullptr || !gid->is_v2() || !gid->address.is_ipv6_link_local()) return;
    judgement.found(
        Confidence::kLikely, view.device->name,
        fmt::format("{} chooses entry {}, a link-local address: a peer on another link cannot be reached from "
                    "it, and ibv_modify_qp ends with ETIMEDOUT or the first message with error 12",
                    name, index),
        pin_remedy(name, *view.port),
        {host::shown(name, setting), fmt::format("{}/gids/{}", view.port->path, gid_text(*gid))});
  });
}

void pinned_to_hole(const Host& host, Judgement& judgement) {
  for_each_pin(host, [&](const char* name, const Setting& setting, unsigned index, const PortView& view) {
    if (entry_at(*view.port, index) != nullptr) return;
    const Gid* best = best_gid(*view.port);
    judgement.found(
        Confidence::kCertain, view.device->name,
        fmt::format("{} chooses entry {}, which is empty (ibv_modify_qp: ENODATA). {}", name, index,
                    best != nullptr ? fmt::format("The usable address stands at {}: the table is built anew "
                                                  "whenever a link or an address changes",
                                                  best->index)
                                    : "No usable address stands anywhere else"),
        pin_remedy(name, *view.port),
        {host::shown(name, setting), fmt::format("{}/gids/{}: empty", view.port->path, index)});
  });
}

void pin_fits_not_all(const Host& host, Judgement& judgement) {
  for (const char* name : kPins) {
    const Setting* setting = host.process.setting(name);
    if (setting == nullptr || !c_number(setting->value)) continue;
    std::vector<std::string> places;
    std::vector<unsigned> indexes;
    for (const PortView& view : roce_ports(host)) {
      const Gid* best = view.port->gids ? best_gid(*view.port) : nullptr;
      if (best == nullptr) continue;
      indexes.push_back(best->index);
      places.push_back(fmt::format("{}/gids/{}", view.port->path, gid_text(*best)));
    }
    if (std::ranges::adjacent_find(indexes, std::ranges::not_equal_to{}) == indexes.end()) continue;
    places.insert(places.begin(), host::shown(name, *setting));
    judgement.found(Confidence::kCertain, name,
                    "one index is asked of all devices, and their usable entries stand at different ones",
                    fmt::format("unset {}, or name devices with equal tables only (NCCL_IB_HCA)", name), places);
  }
}

void ipv6_only(const Host& host, Judgement& judgement) {
  const Setting* family = host.process.setting("NCCL_IB_ADDR_FAMILY");
  if (family != nullptr && family->value == "AF_INET6") return;
  if (host.process.setting("NCCL_IB_GID_INDEX") != nullptr) return;
  for (const PortView& view : roce_ports(host)) {
    const Gid* best = view.port->gids ? best_gid(*view.port) : nullptr;
    if (best == nullptr || best->address.is_ipv4()) continue;
    judgement.found(
        Confidence::kLikely, view.device->name,
        "all usable addresses are IPv6, and NCCL looks for IPv4 unless told otherwise: it stays at entry 0, "
        "which is link-local. Other engines that accept IPv4 only find no GID at all",
        "NCCL_IB_ADDR_FAMILY=AF_INET6", shown_table(*view.port));
  }
}

/// How a container is given a port's addresses.
std::string give_namespace(const Host& host, const PortView& view) {
  if (host.rdma_shared.is(false)) {
    return fmt::format(
        "on the host: rdma dev set {} netns NAME, and ip link set IFACE netns NAME (devices belong to one namespace "
        "each here)",
        view.device->name);
  }
  return "give the interface to the container (macvlan, SR-IOV, or host network); or, on the host before containers "
         "start, "
         "`rdma system set netns exclusive` and an RDMA CNI, which moves the device with it";
}

void add_sharing(const Host& host, std::vector<std::string>& seen) {
  if (host.rdma_shared)
    seen.push_back(evidence(host.rdma_shared, *host.rdma_shared ? "netns shared" : "netns exclusive"));
}

void other_namespace(const Host& host, Judgement& judgement) {
  for (const PortView& view : roce_ports(host)) {
    const auto& gids = view.port->gids;
    if (!gids || gids->empty() || !std::ranges::all_of(*gids, is_foreign)) continue;
    std::vector<std::string> seen{gids->front().version.where() + ": " + gids->front().version.why()};
    add_sharing(host, seen);
    judgement.found(Confidence::kLikely, view.device->name,
                    "the addresses of this port belong to another network namespace: the device is visible here, its "
                    "interface is not, and queue pairs cannot be connected (ENODEV)",
                    give_namespace(host, view), seen);
  }
}

void some_of_other_namespace(const Host& host, Judgement& judgement) {
  for (const PortView& view : roce_ports(host)) {
    const auto& gids = view.port->gids;
    if (!gids || host.rdma_shared.is(false)) continue;  // an exclusive device has the entries of one namespace only
    const auto foreign = std::ranges::find_if(*gids, is_foreign);
    const Gid* own = best_gid(*view.port);
    if (foreign == gids->end() || own == nullptr) continue;
    std::vector<std::string> seen{foreign->version.where() + ": " + foreign->version.why(),
                                  fmt::format("{}/gids/{}", view.port->path, gid_text(*own))};
    add_sharing(host, seen);
    judgement.found(
        Confidence::kCertain, view.device->name,
        fmt::format(
            "entries of other network namespaces stand in this port's table beside those of this one (entry {}): an "
            "index that is right on the host or in another container fails here (ENODEV), and some versions of NCCL "
            "stop at the first entry that they cannot read",
            own->index),
        fmt::format("no fixed index: unset NCCL_IB_GID_INDEX, with an NCCL that looks for the entry itself (here {}); "
                    "or, on the "
                    "host before containers start, `rdma system set netns exclusive`",
                    own->index),
        seen);
  }
}

void odd_number(const Host& host, Judgement& judgement) {
  for (const char* name : kPins) {
    const Setting* setting = host.process.setting(name);
    if (setting == nullptr || setting->value.empty() || setting->value == "-1") continue;
    const std::string& value = setting->value;
    const auto index = c_number(value);
    if (index && !(value.size() > 1 && value[0] == '0' && value[1] != 'x')) continue;
    const unsigned taken = index.value_or(0);
    judgement.found(Confidence::kCertain, name,
                    fmt::format("\"{}\" is read as C reads numbers: it becomes {}, without an error", value, taken),
                    fmt::format("unset {}, or write a decimal number", name), {host::shown(name, *setting)});
  }
}

void self_assigned(const Host& host, Judgement& judgement) {
  for (const PortView& view : roce_ports(host)) {
    for (const Gid& gid : view.port->gids.value_or({})) {
      if (!gid.is_v2() || !gid.address.is_ipv4_link_local()) continue;
      judgement.found(
          Confidence::kLikely, view.device->name,
          "the interface gave itself an address of 169.254.0.0/16, as when no DHCP server answers: no peer "
          "in the fabric's subnet reaches it, yet NCCL pairs the device with others by its place in the list",
          "configure the address, or leave the device out of NCCL_IB_HCA",
          {fmt::format("{}/gids/{}", view.port->path, gid_text(gid))});
    }
  }
}

// clang-format off
constexpr std::array kGidRules = {
    Rule{"TW-GID-001", Severity::kError, "no routable RoCE v2 address on an active port",
         "A RoCE port speaks from an address of its interface. Without one the table holds link-local entries only, and "
         "peers behind a switch that routes, or on another rail, cannot answer them. A firmware update or a profile in "
         "/run that did not survive a reboot are usual reasons.",
         no_usable_gid},
    Rule{"TW-GID-002", Severity::kError, "the chosen GID is RoCE v1",
         "ConnectX tables hold each address twice, as RoCE v1 and v2. Version 1 is an Ethernet protocol of its own: no "
         "IP header, so no routing, no DSCP and no ECN.",
         pinned_to_v1},
    Rule{"TW-GID-003", Severity::kError, "the chosen GID is link-local",
         "Entries 0 and 1 of most tables are fe80:: addresses. They work between two hosts on one cable and nowhere "
         "else. The TCP bootstrap uses another address, so it succeeds, and the first queue pair times out.",
         pinned_to_link_local},
    Rule{"TW-GID-004", Severity::kError, "the chosen GID index is empty",
         "\"Index 3\" is a habit of ConnectX tables with one IPv4 address. The kernel rebuilds the table when an address "
         "or a link changes, irdma, rxe and newer bnxt_re have no v1 entries at all, and VLANs add more: the index moves.",
         pinned_to_hole},
    Rule{"TW-GID-005", Severity::kWarning, "one GID index for devices whose tables differ",
         "The variable is one number for all devices of a process. Where tables differ it is right for some of them "
         "only.",
         pin_fits_not_all},
    Rule{"TW-GID-006", Severity::kWarning, "IPv6 addresses only, and NCCL looks for IPv4",
         "NCCL's automatic choice wants an IPv4-mapped entry (NCCL_IB_ADDR_FAMILY is AF_INET by default). Where there is "
         "none it keeps entry 0 and says nothing.",
         ipv6_only},
    Rule{"TW-GID-007", Severity::kError, "the port's addresses are those of another network namespace",
         "/sys/class/infiniband is not split by namespaces in shared mode. A container sees the device and all GIDs, but "
         "the type of those that are not its own cannot be read (EINVAL), nor can they be used.",
         other_namespace},
    Rule{"TW-GID-008", Severity::kError, "a GID index that is no plain number",
         "strtoll() takes \"auto\" for 0 and \"010\" for 8. An empty value is ignored, as if it were not set.",
         odd_number},
    Rule{"TW-GID-009", Severity::kWarning, "a self-assigned IPv4 address",
         "169.254.0.0/16 is what an interface takes when nobody gives it an address.",
         self_assigned},
    Rule{"TW-GID-010", Severity::kWarning, "entries of other network namespaces in the table",
         "In shared mode (`rdma system`: netns shared) one GID table holds the addresses of all network namespaces, and each "
         "can use its own only. Pods with a macvlan or SR-IOV interface see it so.",
         some_of_other_namespace},
};
// clang-format on

}  // namespace

RuleGroup gid_rules() { return {"Addresses: which GID a job speaks from", kGidRules}; }

}  // namespace tensorwire::host
