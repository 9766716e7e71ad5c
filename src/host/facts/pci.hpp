// The PCI devices that GPUDirect depends on: GPUs, NICs and the bridges above them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/fact.hpp"

namespace tensorwire::host {

/// Access control services of a bridge: which of its requests are sent up to the root complex.
struct Acs {
  bool present = false;
  std::uint16_t control = 0;

  /// Request redirect, completion redirect, upstream forwarding: each takes GPU-NIC traffic over the root complex.
  [[nodiscard]] bool redirects() const noexcept { return present && (control & (0x04 | 0x08 | 0x10)) != 0; }
};

struct PciLink {
  double gt_per_s = 0;
  unsigned width = 0;
};

/// The way from the CPU to a device.
struct PciPath {
  std::string root;                  ///< the host bridge: "pci0000:3a"
  std::vector<std::string> bridges;  ///< from the root port down
};

struct PciDevice {
  std::string address;  ///< "0000:3b:00.0"
  Fact<PciPath> path;
  Fact<int> numa_node;  ///< -1: the system does not say
  Fact<PciLink> link;
  Fact<PciLink> best_link;
  Fact<bool> relaxed_ordering;
  Fact<std::string> iommu_type;  ///< "identity", "DMA", "DMA-FQ"; "none" without an IOMMU
  Fact<std::uint64_t> bar1_bytes;
};

struct PciBridge {
  std::string address;
  Fact<Acs> acs;
};

/// How far a GPU is from a NIC, in NCCL's words.
enum class Distance : std::uint8_t { kPix, kPxb, kPhb, kNode, kSys };
[[nodiscard]] std::string_view to_string(Distance distance) noexcept;

}  // namespace tensorwire::host
