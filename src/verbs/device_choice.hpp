// Which library and which device: a pure rule over what is there and what was asked for. The user-space HCA is the
// automatic choice only where no RDMA device exists; a NIC that is there but unusable is an error, never a silent
// downgrade.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tensorwire::verbs {

/// A device as the system's library lists it. `problem` is why it cannot be used ("port 1 is DOWN", "open failed:
/// ..."); empty: usable.
struct DeviceFacts {
  std::string name;
  std::string problem;
};

enum class Provider : std::uint8_t { kSystem, kSoft };

struct DeviceChoice {
  Provider provider = Provider::kSoft;
  std::string device;  ///< empty: the first one of the provider
  std::string reason;  ///< "no RDMA device on this host", "asked for"
};

/// True for "soft", "soft0", "soft12": names of the user-space HCA.
[[nodiscard]] bool is_soft_name(std::string_view name) noexcept;

/// @param wanted the value of `--device` or TENSORWIRE_DEVICE; empty: automatic
/// @throws Error when a device is there but none is usable (each with its problem), or the one asked for is unknown or
/// unusable.
[[nodiscard]] DeviceChoice choose_device(std::span<const DeviceFacts> system_devices, std::string_view wanted);

}  // namespace tensorwire::verbs
