#include "host/parse/rdma_text.hpp"

#include <algorithm>

#include "host/parse/text.hpp"

namespace tensorwire::host {

namespace {

/// "hca_id:\tmlx5_0": what stands behind the colon of a line that begins with `key`.
std::optional<std::string_view> value_of(std::string_view line, std::string_view key) {
  if (!line.starts_with(key) || line.substr(key.size(), 1) != ":") return std::nullopt;
  return trimmed(line.substr(key.size() + 1));
}

/// "PORT_ACTIVE (4)" -> "ACTIVE".
std::string state_in(std::string_view value) {
  value = value.substr(0, value.find(' '));
  return std::string{value.starts_with("PORT_") ? value.substr(5) : value};
}

/// "GID[  3]:\t\t::ffff:192.0.2.10, RoCE v2".
void read_gid(std::string_view line, const std::string& where, PrintedPort& port) {
  const auto index = number_in<unsigned>(trimmed(line.substr(4, line.find(']') - 4)));
  const auto colon = line.find("]:");
  if (!index || colon == std::string_view::npos) return;
  const auto parts = split(line.substr(colon + 2), ',');
  const auto address = parse_address(trimmed(parts[0]));
  if (!address || address->is_zero()) return;
  Gid gid{*index, *address, {}, {}};
  if (parts.size() > 1 && trimmed(parts[1]) == "RoCE v2") gid.version = {GidVersion::kRoceV2, where};
  if (parts.size() > 1 && trimmed(parts[1]) == "RoCE v1") gid.version = {GidVersion::kRoceV1, where};
  port.gids.push_back(std::move(gid));
}

void read_port_line(std::string_view line, const std::string& where, PrintedPort& port) {
  if (const auto state = value_of(line, "state")) {
    port.state = state_in(*state);
  } else if (const auto mtu = value_of(line, "active_mtu")) {
    port.active_mtu = number_in<unsigned>(mtu->substr(0, mtu->find(' ')));
  } else if (const auto layer = value_of(line, "link_layer")) {
    port.link_layer = *layer == "Ethernet"     ? LinkLayer::kEthernet
                      : *layer == "InfiniBand" ? LinkLayer::kInfiniband
                                               : LinkLayer::kUnspecified;
  } else if (line.starts_with("GID[")) {
    read_gid(line, where, port);
  }
}

PrintedPort& port_of(std::vector<PrintedDevice>& devices, std::string_view name, unsigned number) {
  auto device = std::ranges::find(devices, name, &PrintedDevice::name);
  if (device == devices.end()) {
    devices.push_back({std::string{name}, {}, {}});
    device = std::prev(devices.end());
  }
  const auto port = std::ranges::find(device->ports, number, &PrintedPort::number);
  if (port != device->ports.end()) return *port;
  device->ports.push_back({.number = number, .state = {}, .active_mtu = {}, .link_layer = {}, .gids = {}});
  return device->ports.back();
}

}  // namespace

std::vector<PrintedDevice> parse_ibv_devinfo(std::string_view text, const std::string& where) {
  std::vector<PrintedDevice> devices;
  for (const std::string_view whole : lines_of(text)) {
    const std::string_view line = trimmed(whole);
    if (const auto name = value_of(line, "hca_id")) {
      devices.push_back({std::string{*name}, {}, {}});
    } else if (devices.empty()) {
      continue;
    } else if (const auto number = value_of(line, "port")) {
      port_of(devices, std::string{devices.back().name}, number_in<unsigned>(*number).value_or(1));
    } else if (const auto firmware = value_of(line, "fw_ver")) {
      devices.back().firmware = *firmware;
    } else if (!devices.back().ports.empty()) {
      read_port_line(line, where, devices.back().ports.back());
    }
  }
  return devices;
}

std::vector<PrintedDevice> parse_show_gids(std::string_view text, const std::string& where) {
  std::vector<PrintedDevice> devices;
  for (const std::string_view line : lines_of(text)) {
    // DEV PORT INDEX GID [IPv4] VER NETDEV
    const auto words = words_of(line);
    if (words.size() < 6) continue;
    const auto number = number_in<unsigned>(words[1]);
    const auto index = number_in<unsigned>(words[2]);
    const auto address = parse_address(words[3]);
    const std::string_view version = words[words.size() - 2];
    if (!number || !index || !address || (version != "v1" && version != "v2")) continue;
    port_of(devices, words[0], *number)
        .gids.push_back({*index,
                         *address,
                         {version == "v2" ? GidVersion::kRoceV2 : GidVersion::kRoceV1, where},
                         {std::string{words.back()}, where}});
  }
  return devices;
}

}  // namespace tensorwire::host
