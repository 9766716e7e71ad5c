#include "cli/soft_pci.hpp"

#include <algorithm>
#include <fstream>
#include <optional>
#include <regex>
#include <tuple>
#include <vector>

namespace tensorwire::cli {

namespace {

namespace fs = std::filesystem;

constexpr int kDeepestStack = 4;  // a VLAN on a bond on a NIC, and one more

std::string first_line(const fs::path& file) {
  std::ifstream stream{file};
  std::string line;
  std::getline(stream, line);
  return line;
}

bool is_pci_folder(const fs::path& folder) {
  static const std::regex address{"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]"};
  return std::regex_match(folder.filename().string(), address);
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it{folder, error}, end; !error && it != end; it.increment(error)) found.push_back(*it);
  std::ranges::sort(found);
  return found;
}

/// A virtio NIC's device is a bus of its own below the PCI device.
fs::path pci_folder_above(fs::path folder) {
  while (folder.has_relative_path() && !is_pci_folder(folder)) folder = folder.parent_path();
  return folder.has_relative_path() ? folder : fs::path{};
}

fs::path nic_of(const fs::path& interface, int depth) {
  std::error_code error;
  const fs::path device = fs::canonical(interface / "device", error);
  if (!error) return pci_folder_above(device);
  if (depth == kDeepestStack) return {};
  for (const fs::path& entry : entries_of(interface)) {
    if (!entry.filename().string().starts_with("lower_")) continue;
    if (fs::path nic = nic_of(entry, depth + 1); !nic.empty()) return nic;
  }
  return {};
}

enum class Kind : std::uint8_t { kNic, kOther, kBridge, kGpu };

struct PciDevice {
  fs::path folder;
  Kind kind = Kind::kOther;
};

Kind kind_of(const fs::path& folder) {
  const std::string number = first_line(folder / "class");  // "0x020000"
  if (number.starts_with("0x02")) return Kind::kNic;
  if (number.starts_with("0x06")) return Kind::kBridge;
  const bool of_nvidia = first_line(folder / "vendor") == "0x10de";
  return of_nvidia && number.starts_with("0x03") ? Kind::kGpu : Kind::kOther;
}

std::vector<PciDevice> pci_devices(const fs::path& sys) {
  std::vector<PciDevice> devices;
  for (const fs::path& entry : entries_of(sys / "bus/pci/devices")) {
    std::error_code error;
    const fs::path folder = fs::canonical(entry, error);
    if (!error) devices.push_back({folder, kind_of(folder)});
  }
  return devices;
}

std::ptrdiff_t common_parts(const fs::path& one, const fs::path& other) {
  return std::distance(one.begin(), std::ranges::mismatch(one, other).in1);
}

PciPlace stand_in(const fs::path& sys) {
  const std::vector<PciDevice> devices = pci_devices(sys);
  const auto gpu = std::ranges::find(devices, Kind::kGpu, &PciDevice::kind);
  const PciDevice* best = nullptr;
  const auto rank = [&](const PciDevice& device) {
    return std::tuple{gpu == devices.end() ? 0 : -common_parts(device.folder, gpu->folder), device.kind};
  };
  for (const PciDevice& device : devices) {
    if (device.kind != Kind::kGpu && (best == nullptr || rank(device) < rank(*best))) best = &device;
  }
  if (best == nullptr) return {.folder = {}, .reason = "there is no PCI device that would do"};
  return {
      .folder = best->folder.string(),
      .reason = gpu == devices.end() ? "the first PCI device" : "next to the GPU " + gpu->folder.filename().string()};
}

}  // namespace

PciPlace pci_place(const fs::path& sys, const std::string& interface, int interface_index) {
  const fs::path folder = sys / "class/net" / interface;
  // A sysfs that was mounted for another network namespace may have an interface of the same name.
  if (first_line(folder / "ifindex") == std::to_string(interface_index)) {
    if (const fs::path nic = nic_of(folder, 0); !nic.empty()) {
      return {.folder = nic.string(), .reason = "the NIC of " + interface, .is_nic = true};
    }
  }
  PciPlace place = stand_in(sys);
  place.reason = interface + " has no PCI device; " + place.reason;
  return place;
}

}  // namespace tensorwire::cli
