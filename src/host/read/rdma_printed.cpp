// RDMA devices from what tools printed: what libibverbs shows beside what the kernel has, and devices of which nothing
// else is known (those of the user-space HCA, and roots that hold tool outputs only).
#include <algorithm>
#include <array>
#include <cerrno>

#include "host/parse/rdma_text.hpp"
#include "host/read/parts.hpp"
#include "host/read/read.hpp"

namespace tensorwire::host {

namespace {

struct FamilyOfName {
  std::string_view prefix;
  NicFamily family;
};

/// The names that drivers give; for devices whose driver is not known.
constexpr std::array kFamilyNames = {
    FamilyOfName{"mlx5_", NicFamily::kMlx5},       FamilyOfName{"mlx4_", NicFamily::kMlx4},
    FamilyOfName{"bnxt_re", NicFamily::kBroadcom}, FamilyOfName{"irdma", NicFamily::kIntel},
    FamilyOfName{"ionic_", NicFamily::kPensando},  FamilyOfName{"rxe", NicFamily::kRxe},
    FamilyOfName{"siw", NicFamily::kSiw},          FamilyOfName{"soft", NicFamily::kUserSpace}};

NicFamily family_by_name(std::string_view name) {
  for (const FamilyOfName& row : kFamilyNames) {
    if (name.starts_with(row.prefix)) return row.family;
  }
  return NicFamily::kOther;
}

void fill_port(const PrintedPort& printed, const std::string& where, RdmaPort& port) {
  if (printed.active_mtu) port.active_mtu = {*printed.active_mtu, where};
  if (!port.state && !printed.state.empty()) port.state = {printed.state, where};
  if (!port.link_layer && printed.link_layer) port.link_layer = {*printed.link_layer, where};
  if (!port.gids && !printed.gids.empty()) port.gids = {printed.gids, where};
}

RdmaPort new_port(const PrintedPort& printed, const std::string& device, const std::string& where) {
  RdmaPort port;
  port.number = printed.number;
  port.path = where + " of " + device;
  fill_port(printed, where, port);
  // show_gids knows of Ethernet ports only, and prints no state.
  if (!port.link_layer) port.link_layer = {LinkLayer::kEthernet, where};
  return port;
}

void merge(const std::vector<PrintedDevice>& printed, const std::string& where, std::vector<RdmaDevice>& devices) {
  for (const PrintedDevice& one : printed) {
    auto device = std::ranges::find(devices, one.name, &RdmaDevice::name);
    if (device == devices.end()) {
      device = devices.emplace(devices.end());
      device->name = one.name;
      device->family = family_by_name(one.name);
      if (!one.firmware.empty()) device->firmware = {one.firmware, where};
    }
    for (const PrintedPort& port : one.ports) {
      const auto known = std::ranges::find(device->ports, port.number, &RdmaPort::number);
      if (known != device->ports.end()) {
        fill_port(port, where, *known);
      } else {
        device->ports.push_back(new_port(port, one.name, where));
      }
    }
  }
}

void read_dmabuf(Tree& tree, std::vector<RdmaDevice>& devices) {
  const Answer answer = tree.tool(tool::kDmabuf, "");
  const std::string where = tool_command(tool::kDmabuf, "");
  for (RdmaDevice& device : devices) {
    device.dmabuf_error = Fact<std::string>::unknown(answer.ok() ? "the device was not asked" : answer.why(), where);
    for (const std::string_view line : lines_of(answer.text)) {
      const auto words = words_of(line);
      if (answer.ok() && words.size() == 2 && words[0] == device.name)
        device.dmabuf_error = {std::string{words[1]}, where};
    }
  }
}

}  // namespace

void add_printed_devices(Tree& tree, Host& host) {
  if (!host.rdma) return;
  std::vector<RdmaDevice> devices = *host.rdma;
  const Answer verbs = tree.tool(tool::kVerbsDevices, "");
  const std::string where = tool_command(tool::kVerbsDevices, "");
  host.has_libibverbs = verbs.ok()               ? Fact<bool>{true, where}
                        : verbs.error == ELIBACC ? Fact<bool>{false, where}
                                                 : Fact<bool>::unknown(verbs.why(), where);
  host.verbs_devices = fact_of(verbs, where, [&](std::string_view text) {
    const auto printed = parse_ibv_devinfo(text, where);
    const bool says_none = trimmed(text).empty() || text.find("No IB devices found") != std::string_view::npos;
    if (printed.empty() && !says_none) return std::optional<std::vector<std::string>>{};
    merge(printed, where, devices);
    std::vector<std::string> names;
    for (const PrintedDevice& one : printed) names.push_back(one.name);
    return std::optional{names};
  });
  const Answer gids = tree.tool(tool::kShowGids, "");
  const std::string command = tool_command(tool::kShowGids, "");
  if (gids.ok()) merge(parse_show_gids(gids.text, command), command, devices);
  if (devices.empty()) return;
  read_dmabuf(tree, devices);
  host.rdma = {std::move(devices), host.rdma.where()};
}

}  // namespace tensorwire::host
