#include "host/parse/lspci.hpp"

#include <algorithm>

#include "host/parse/text.hpp"

namespace tensorwire::host {

namespace {

constexpr std::size_t kDeepest = 32;

/// "3c:01.0" or "0000:3c:01.0" -> "0000:3c:01.0".
std::optional<std::string> address_in(std::string_view word) {
  const auto fits = [](std::string_view text) {
    return text.size() == 7 && text[2] == ':' && text[5] == '.' &&
           number_in<unsigned>(text.substr(0, 2), 16).has_value() &&
           number_in<unsigned>(text.substr(3, 2), 16).has_value();
  };
  if (fits(word)) return "0000:" + std::string{word};
  if (word.size() > 8 && word[word.size() - 8] == ':' && fits(word.substr(word.size() - 7))) return std::string{word};
  return std::nullopt;
}

std::string bus_of(const std::string& address) { return address.substr(0, address.size() - 5); }

/// "3c:01.0 PCI bridge: Broadcom / LSI PEX890xx ... (rev b0)".
std::optional<LspciDevice> device_in(std::string_view line) {
  const auto space = line.find(' ');
  const auto address = space == std::string_view::npos ? std::nullopt : address_in(line.substr(0, space));
  const auto colon = line.find(": ", std::min(space, line.size()));
  if (!address || colon == std::string_view::npos) return std::nullopt;
  LspciDevice device;
  device.address = *address;
  device.kind = line.substr(space + 1, colon - space - 1);
  device.kind = device.kind.substr(0, device.kind.find(" ["));  // the class as a number, with -nn
  device.name = line.substr(colon + 2);
  return device;
}

/// "Speed 16GT/s (downgraded), Width x8 (ok)".
std::optional<PciLink> link_in(std::string_view text) {
  const auto speed = between(text, "Speed ", "GT/s");
  const auto width = between(text, "Width x", {});
  const auto rate = speed ? number_in<double>(*speed) : std::nullopt;
  const auto lanes = width ? leading_number(*width) : std::nullopt;
  if (!rate || !lanes || *lanes < 0) return std::nullopt;
  return PciLink{*rate, static_cast<unsigned>(*lanes)};
}

/// "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-".
Acs acs_flags(std::string_view flags) {
  constexpr std::string_view kNames[] = {"SrcValid+",    "TransBlk+",   "ReqRedir+",   "CmpltRedir+",
                                         "UpstreamFwd+", "EgressCtrl+", "DirectTrans+"};
  Acs acs{.present = true, .control = 0};
  for (std::size_t bit = 0; bit < std::size(kNames); ++bit) {
    if (flags.find(kNames[bit]) != std::string_view::npos)
      acs.control = static_cast<std::uint16_t>(acs.control | 1U << bit);
  }
  return acs;
}

/// "[size=128G]".
std::optional<std::uint64_t> size_in(std::string_view line) {
  const auto size = between(line, "[size=", "]");
  if (!size || size->empty()) return std::nullopt;
  const auto unit = std::string_view{"KMGT"}.find(size->back());
  const auto number =
      number_in<std::uint64_t>(unit == std::string_view::npos ? *size : size->substr(0, size->size() - 1));
  if (!number || *number >= std::uint64_t{1} << 20) return std::nullopt;
  return unit == std::string_view::npos ? *number : *number << (10 * (unit + 1));
}

void read_detail(std::string_view line, LspciDevice& device) {
  const auto after = [&line](std::string_view key) { return between(line, key, {}); };
  if (line.starts_with("Capabilities: <access denied>")) {
    device.access_denied = true;
  } else if (line.starts_with("Capabilities: [")) {
    device.shows_capabilities = true;
  } else if (line.starts_with("ACSCtl:")) {
    device.acs = acs_flags(line);
  } else if (line.find("RlxdOrd") != std::string_view::npos) {
    device.relaxed_ordering = line.find("RlxdOrd+") != std::string_view::npos;
  } else if (const auto best = after("LnkCap:")) {
    device.best_link = link_in(*best);
  } else if (const auto now = after("LnkSta:")) {
    device.link = link_in(*now);
  } else if (const auto node = after("NUMA node:")) {
    device.numa_node = leading_number(trimmed(*node));
  } else if (const auto bus = between(line, "secondary=", ",")) {
    device.secondary_bus = device.address.substr(0, device.address.size() - 7) + std::string{*bus};
  } else if (line.starts_with("Region 1: Memory")) {
    device.bar1_bytes = size_in(line);
  } else if (const auto driver = after("Kernel driver in use:")) {
    device.driver = trimmed(*driver);
  }
}

}  // namespace

std::vector<LspciDevice> parse_lspci(std::string_view text) {
  std::vector<LspciDevice> devices;
  for (const std::string_view line : lines_of(text)) {
    if (auto device = line.starts_with('\t') ? std::nullopt : device_in(line)) {
      devices.push_back(std::move(*device));
    } else if (!devices.empty()) {
      read_detail(trimmed(line), devices.back());
    }
  }
  for (LspciDevice& device : devices) {
    if (device.shows_capabilities && !device.access_denied && !device.acs) device.acs = Acs{};
  }
  return devices;
}

PciPath path_of(const LspciDevice& device, const std::vector<LspciDevice>& all) {
  PciPath path;
  std::string bus = bus_of(device.address);
  while (path.bridges.size() < kDeepest) {
    const auto bridge = std::ranges::find(all, bus, &LspciDevice::secondary_bus);
    if (bridge == all.end()) break;
    path.bridges.insert(path.bridges.begin(), bridge->address);
    bus = bus_of(bridge->address);
  }
  path.root = "pci" + bus;
  return path;
}

}  // namespace tensorwire::host
