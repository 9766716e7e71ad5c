// `lspci -vvv`, as people attach it to reports. As root it shows what configuration space holds; others get
// "Capabilities: <access denied>", which is no statement about them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/facts/pci.hpp"

namespace tensorwire::host {

struct LspciDevice {
  std::string address;  ///< "0000:3c:01.0"
  std::string kind;     ///< "PCI bridge", "3D controller"
  std::string name;     ///< "NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)"
  std::string driver;
  std::string secondary_bus;  ///< of a bridge: "0000:3e"
  bool shows_capabilities = false;
  bool access_denied = false;
  std::optional<Acs> acs;  ///< "not present" where capabilities are shown and this one is not among them
  std::optional<bool> relaxed_ordering;
  std::optional<PciLink> link, best_link;
  std::optional<int> numa_node;
  std::optional<std::uint64_t> bar1_bytes;
};

[[nodiscard]] std::vector<LspciDevice> parse_lspci(std::string_view text);

/// The bridges above a device, from the buses that they lead to.
[[nodiscard]] PciPath path_of(const LspciDevice& device, const std::vector<LspciDevice>& all);

}  // namespace tensorwire::host
