#include <algorithm>
#include <array>

#include "host/parse/mlxconfig.hpp"
#include "host/read/parts.hpp"
#include "host/read/read.hpp"

namespace tensorwire::host {

namespace {

const std::string kRdmaClass = "/sys/class/infiniband/";

/// "4: ACTIVE" -> "ACTIVE".
Fact<std::string> named_state(Tree& tree, const std::string& path) {
  return fact_in_file(tree, path, [](std::string_view text) {
    const auto name = between(text, ":", {});
    return name ? std::optional{std::string{trimmed(*name)}} : std::nullopt;
  });
}

std::optional<LinkLayer> link_layer_in(std::string_view text) {
  const std::string_view name = trimmed(text);
  if (name == "Ethernet") return LinkLayer::kEthernet;
  if (name == "InfiniBand") return LinkLayer::kInfiniband;
  return name == "Unknown" || name == "Unspecified" ? std::optional{LinkLayer::kUnspecified} : std::nullopt;
}

std::optional<GidVersion> gid_version_in(std::string_view text) {
  const std::string_view name = trimmed(text);
  if (name == "RoCE v2") return GidVersion::kRoceV2;
  return name == "IB/RoCE v1" || name == "RoCE v1" ? std::optional{GidVersion::kRoceV1} : std::nullopt;
}

/// "Global tclass=106"; empty when nothing is forced.
std::optional<std::optional<unsigned>> forced_class_in(std::string_view text) {
  const auto value = between(text, "Global tclass=", "\n");
  if (!value) return trimmed(text).empty() ? std::optional{std::optional<unsigned>{}} : std::nullopt;
  const auto number = number_in<unsigned>(trimmed(*value));
  return number ? std::optional{number} : std::nullopt;
}

/// Of an empty entry nothing is told but with which errno, and a recording has that, too.
EmptyGid read_empty_gid(Tree& tree, const std::string& port, unsigned index) {
  return {index, fact_in_file(tree, port + "/gid_attrs/types/" + std::to_string(index), gid_version_in)};
}

Fact<std::vector<Gid>> read_gids(Tree& tree, const std::string& port, std::vector<EmptyGid>& empty) {
  const std::string folder = port + "/gids";
  const auto names = names_in(tree, folder);
  if (!names) return Fact<std::vector<Gid>>::unknown(names.why(), folder);
  std::vector<Gid> gids;
  for (const std::string& name : *names) {
    const auto index = number_in<unsigned>(name);
    const Answer text = tree.text(folder + "/" + name);
    // With one entry unread nothing can be said of the table: it may be the one that matters.
    if (!text.ok()) return Fact<std::vector<Gid>>::unknown(text.why(), folder + "/" + name);
    const auto address = parse_address(trimmed(text.text));
    if (!address) return Fact<std::vector<Gid>>::unknown(std::string{kNotUnderstood}, folder + "/" + name);
    if (!index) continue;
    if (address->is_zero()) {
      empty.push_back(read_empty_gid(tree, port, *index));
      continue;
    }
    gids.push_back({*index, *address, fact_in_file(tree, port + "/gid_attrs/types/" + name, gid_version_in),
                    line_in(tree, port + "/gid_attrs/ndevs/" + name)});
  }
  std::ranges::sort(gids, {}, &Gid::index);
  std::ranges::sort(empty, {}, &EmptyGid::index);
  return {std::move(gids), folder};
}

/// Those that are in `all` already stay.
void add_counters(Tree& tree, const std::string& folder, Fact<Counters>& all) {
  Fact<Counters> more = counters_in(tree, folder);
  if (!more && all) return;
  if (!more) {
    all = std::move(more);
    return;
  }
  Counters counters = *more;
  counters.merge(all.value_or({}));
  all = {std::move(counters), folder};
}

RdmaPort read_port(Tree& tree, const std::string& device, unsigned number) {
  RdmaPort port;
  port.number = number;
  port.path = kRdmaClass + device + "/ports/" + std::to_string(number);
  port.state = named_state(tree, port.path + "/state");
  port.phys_state = named_state(tree, port.path + "/phys_state");
  port.rate_gbps = fact_in_file(tree, port.path + "/rate", [](std::string_view text) {
    return number_in<double>(text.substr(0, text.find(' ')));
  });
  port.link_layer = fact_in_file(tree, port.path + "/link_layer", link_layer_in);
  port.gids = read_gids(tree, port.path, port.empty_gids);
  port.gid_slots =
      names_in(tree, port.path + "/gids").then([](const auto& names) { return static_cast<unsigned>(names.size()); });
  add_counters(tree, port.path + "/counters", port.counters);
  add_counters(tree, port.path + "/hw_counters", port.counters);
  port.forced_traffic_class =
      fact_in_file(tree, kRdmaClass + device + "/tc/" + std::to_string(number) + "/traffic_class", forced_class_in);
  return port;
}

struct FamilyOfDriver {
  std::string_view name;
  NicFamily family;
};

/// By the driver of the PCI device, which stays what it is when udev renames the RDMA device.
constexpr std::array kDrivers = {
    FamilyOfDriver{"mlx5_core", NicFamily::kMlx5},   FamilyOfDriver{"mlx4_core", NicFamily::kMlx4},
    FamilyOfDriver{"bnxt_en", NicFamily::kBroadcom}, FamilyOfDriver{"ice", NicFamily::kIntel},
    FamilyOfDriver{"i40e", NicFamily::kIntel},       FamilyOfDriver{"idpf", NicFamily::kIntel},
    FamilyOfDriver{"qede", NicFamily::kQlogic},      FamilyOfDriver{"ionic", NicFamily::kPensando},
    FamilyOfDriver{"efa", NicFamily::kEfa},
};

NicFamily family_of(Tree& tree, const std::string& device, const Fact<std::string>& driver) {
  for (const FamilyOfDriver& row : kDrivers) {
    if (driver.is(std::string{row.name})) return row.family;
  }
  // Software devices have no PCI device; the kernel shows which interface rxe and siw were made on.
  if (driver || !tree.text(kRdmaClass + device + "/parent").ok()) return NicFamily::kOther;
  return device.starts_with("siw") ? NicFamily::kSiw : NicFamily::kRxe;
}

/// "uverbs0": the node that belongs to a device.
Fact<std::string> verbs_node_of(Tree& tree, const std::string& device) {
  const std::string folder = "/sys/class/infiniband_verbs";
  const auto names = names_in(tree, folder);
  if (!names) return Fact<std::string>::unknown(names.why(), folder);
  for (const std::string& name : *names) {
    if (line_in(tree, folder + "/" + name + "/ibdev").is(device)) return {name, folder};
  }
  return Fact<std::string>::unknown("no node names the device", folder);
}

RdmaDevice read_rdma_device(Tree& tree, const std::string& name) {
  RdmaDevice device;
  device.name = name;
  const std::string path = kRdmaClass + name;
  device.driver = target_name(tree, path + "/device/driver");
  device.family = family_of(tree, name, device.driver);
  device.pci_address = target_name(tree, path + "/device");
  if (device.family == NicFamily::kMlx5 && device.pci_address)
    add_counters(tree, "/sys/kernel/debug/mlx5/" + *device.pci_address + "/cc_params", device.dcqcn);
  if (device.family == NicFamily::kMlx5 && device.pci_address)
    device.firmware_settings = fact_of_tool(tree, tool::kMlxconfig, *device.pci_address, parse_mlxconfig);
  device.firmware = line_in(tree, path + "/fw_ver");
  device.system_guid = line_in(tree, path + "/sys_image_guid");
  device.verbs_node = verbs_node_of(tree, name);
  if (device.verbs_node) {
    const std::string node = "/dev/infiniband/" + *device.verbs_node;
    const Answer opens = tree.opens(node);
    device.node_error =
        opens.error == kNotRecorded ? Fact<int>::unknown(opens.why(), node) : Fact<int>{opens.error, node};
    device.verbs_abi =
        number_in_file<unsigned>(tree, "/sys/class/infiniband_verbs/" + *device.verbs_node + "/abi_version");
  }
  const auto ports = names_in(tree, path + "/ports");
  for (const std::string& port : ports.value_or({})) {
    if (const auto number = number_in<unsigned>(port)) device.ports.push_back(read_port(tree, name, *number));
  }
  return device;
}

}  // namespace

Fact<std::vector<RdmaDevice>> read_rdma_devices(Tree& tree) {
  const std::string folder = "/sys/class/infiniband";
  const Answer names = tree.names(folder);
  if (exists(names, folder).is(false)) return {{}, folder};
  if (!names.ok()) return Fact<std::vector<RdmaDevice>>::unknown(names.why(), folder);
  const auto is_name = [](std::string_view name) {
    return std::ranges::all_of(name, [](char c) { return c > ' ' && c < '\x7f' && c != '/'; });
  };
  if (!std::ranges::all_of(lines_of(names.text), is_name))
    return Fact<std::vector<RdmaDevice>>::unknown(std::string{kNotUnderstood}, folder);
  std::vector<RdmaDevice> devices;
  for (const std::string_view name : lines_of(names.text)) devices.push_back(read_rdma_device(tree, std::string{name}));
  return {std::move(devices), folder};
}

}  // namespace tensorwire::host
