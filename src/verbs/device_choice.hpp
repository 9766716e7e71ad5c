// Which library and which device: a pure rule over what is there and what was asked for. The user-space HCA is the
// automatic choice only where no RDMA device exists; a NIC that is there but unusable is an error, never a silent
// downgrade.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verbs/gid.hpp"
#include "verbs/route.hpp"

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

/// What tells where packets of a device of the user-space HCA go, which has one for each interface.
struct SoftDeviceFacts {
  struct Address {
    Gid gid;
    std::string netdev;
  };
  std::vector<Address> addresses;
};

/// The device on the route to a peer. Where the route is not known, the first; but where peers are on other hosts, the
/// first that is not loopback's.
/// @param look_at is asked for one after the other, and no more than it takes: that means to open them
/// @throws Error when no device is on the route, or there is only loopback's and peers are elsewhere
[[nodiscard]] std::string choose_soft_device(std::span<const std::string> names,
                                             const std::function<SoftDeviceFacts(const std::string&)>& look_at,
                                             const Route* route, bool has_peers_elsewhere);

}  // namespace tensorwire::verbs
