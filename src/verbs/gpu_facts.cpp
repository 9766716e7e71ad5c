#include "verbs/gpu_facts.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace tensorwire::verbs {

namespace {

// Values of cuda.h.
constexpr int kPciBus = 33, kPciDevice = 34, kPciDomain = 50, kRdmaSupported = 116, kFlushOptions = 117,
              kWritesOrdering = 118, kDmaBufSupported = 124;

std::optional<int> attribute(const CudaDriver& driver, int which, int device) {
  int value = 0;
  if (driver.device_attribute(&value, which, device) != 0) return std::nullopt;
  return value;
}

std::optional<bool> open_kernel_modules() {
  std::ifstream file{"/proc/driver/nvidia/version"};
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line.find("Open Kernel Module") != std::string::npos;
}

bool peermem_loaded() {
  for (const char* const path :
       {"/sys/module/nvidia_peermem", "/sys/kernel/mm/memory_peers/nv_mem", "/sys/kernel/mm/memory_peers/nv_mem_nc"}) {
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return true;
  }
  return false;
}

/// The second of a PCI device's windows; sysfs has a line of first address, last address and flags for each.
std::optional<std::uint64_t> bar1_bytes(int domain, int bus, int device) {
  std::ifstream file{fmt::format("/sys/bus/pci/devices/{:04x}:{:02x}:{:02x}.0/resource", domain, bus, device)};
  std::string line;
  std::getline(file, line);
  if (!std::getline(file, line)) return std::nullopt;
  std::uint64_t first = 0, last = 0;
  if (std::sscanf(line.c_str(), "%" SCNx64 " %" SCNx64, &first, &last) != 2 || last <= first) return std::nullopt;
  return last - first + 1;
}

}  // namespace

GpuFacts read_gpu_facts(const CudaDriver& driver, int ordinal) {
  GpuFacts facts;
  facts.ordinal = ordinal;
  utsname system{};
  if (::uname(&system) == 0) facts.kernel = system.release;
  facts.open_kernel_modules = open_kernel_modules();
  facts.peermem_loaded = peermem_loaded();

  int device = 0;
  if (driver.device_get(&device, ordinal) != 0) return facts;
  std::array<char, 128> model{};
  if (driver.device_name(model.data(), model.size() - 1, device) == 0) facts.model = model.data();
  if (const auto value = attribute(driver, kRdmaSupported, device)) facts.rdma_supported = *value != 0;
  if (const auto value = attribute(driver, kDmaBufSupported, device)) facts.dmabuf_supported = *value != 0;
  facts.writes_ordering = attribute(driver, kWritesOrdering, device);
  if (const auto value = attribute(driver, kFlushOptions, device)) facts.flush_options = static_cast<unsigned>(*value);
  const auto bus = attribute(driver, kPciBus, device);
  const auto slot = attribute(driver, kPciDevice, device);
  if (bus && slot) facts.bar1_bytes = bar1_bytes(attribute(driver, kPciDomain, device).value_or(0), *bus, *slot);
  return facts;
}

}  // namespace tensorwire::verbs
