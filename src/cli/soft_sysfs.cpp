#include "cli/soft_sysfs.hpp"

#include <endian.h>
#include <fmt/format.h>

#include <span>

#include "softhca/devices.hpp"
#include "softhca/gid_table.hpp"
#include "softhca/link_rate.hpp"

namespace tensorwire::cli {

namespace {

/// "0000:0000:...:0a4d:0001"
std::string hexadecimal_groups(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0 && i % 2 == 0) text += ':';
    text += fmt::format("{:02x}", static_cast<unsigned>(bytes[i]));
  }
  return text;
}

std::string guid_text(std::uint64_t guid_network_order) {
  const std::uint64_t guid = be64toh(guid_network_order);
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xffff, guid >> 16 & 0xffff,
                     guid & 0xffff);
}

struct LaneSpeed {
  std::uint8_t code;
  unsigned tenths_gbps;
  const char* suffix;
};
constexpr LaneSpeed kLaneSpeeds[] = {{1, 25, " SDR"},   {2, 50, " DDR"},   {4, 100, " QDR"},   {8, 100, " FDR10"},
                                     {32, 250, " EDR"}, {64, 500, " HDR"}, {128, 1000, " NDR"}};

/// "100 Gb/sec (4X EDR)"
std::string rate_text(std::uint64_t mbps) {
  const softhca::LinkRate& rate = softhca::link_rate(mbps);
  const unsigned lanes = rate.width == 2 ? 4 : 1;
  for (const LaneSpeed& speed : kLaneSpeeds) {
    if (speed.code != rate.speed) continue;
    const unsigned tenths = speed.tenths_gbps * lanes;
    const std::string fraction = tenths % 10 == 0 ? "" : fmt::format(".{}", tenths % 10);
    return fmt::format("{}{} Gb/sec ({}X{})", tenths / 10, fraction, lanes, speed.suffix);
  }
  return "";
}

void add_gids(const SoftDeviceFacts& device, std::vector<SysfsEntry>& entries) {
  const std::string port = device.info.name + "/ports/1/";
  for (std::size_t index = 0; index < device.gids.size(); ++index) {
    const softhca::GidEntry& entry = device.gids[index];
    const bool empty = entry.gid.is_zero();
    const std::string number = std::to_string(index);
    entries.push_back({port + "gids/" + number, hexadecimal_groups(entry.gid.bytes) + "\n"});
    const char* const type = entry.roce_v2 ? "RoCE v2\n" : "IB/RoCE v1\n";
    entries.push_back({port + "gid_attrs/types/" + number, empty ? "" : type});
    entries.push_back({port + "gid_attrs/ndevs/" + number, empty ? "" : device.info.interface + "\n"});
  }
}

/// As InterfaceWatch collects them for a running HCA.
std::vector<wire::Gid> addresses_of(const softhca::DeviceInfo& info) {
  std::vector<wire::Gid> addresses{wire::Gid::from_ipv4(info.ipv4)};
  if (info.has_ipv6) {
    for (const wire::Gid& gid : softhca::bindable_ipv6_addresses(info.interface_index)) addresses.push_back(gid);
  }
  return addresses;
}

}  // namespace

std::vector<SoftDeviceFacts> soft_device_facts() {
  const softhca::GidLayout layout = softhca::gid_layout_from_environment();
  std::vector<SoftDeviceFacts> facts;
  for (softhca::DeviceInfo& info : softhca::list_devices()) {
    softhca::GidTable table{layout};
    table.update(addresses_of(info));
    SoftDeviceFacts device;
    device.port = softhca::read_port(info.interface);
    device.gids = table.entries();
    device.info = std::move(info);
    facts.push_back(std::move(device));
  }
  return facts;
}

std::vector<SysfsEntry> sysfs_entries(const SoftDeviceFacts& device) {
  const std::string folder = device.info.name + "/";
  const std::string port = folder + "ports/1/";
  const std::string guid = guid_text(device.info.guid) + "\n";
  std::vector<SysfsEntry> entries{
      {folder + "node_type", "1: CA\n"},
      {folder + "node_desc", "tensorwire " + device.info.name + "\n"},
      {folder + "node_guid", guid},
      {folder + "sys_image_guid", guid},
      {folder + "fw_ver", TENSORWIRE_VERSION "\n"},
      {port + "state", device.port.active ? "4: ACTIVE\n" : "1: DOWN\n"},
      {port + "phys_state", device.port.active ? "5: LinkUp\n" : "3: Disabled\n"},
      {port + "rate", rate_text(device.port.speed_mbps) + "\n"},
      {port + "link_layer", "Ethernet\n"},
      {port + "pkeys/0", "0xffff\n"},
  };
  if (!device.pci_folder.empty()) entries.push_back({folder + "device", device.pci_folder, true});
  add_gids(device, entries);
  return entries;
}

}  // namespace tensorwire::cli
