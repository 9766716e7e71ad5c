// Looks at the devices of one library: their names, and whether a port of theirs can carry RoCEv2. Used before a
// choice; keeps nothing open.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "verbs/device_choice.hpp"
#include "verbs/library.hpp"

namespace tensorwire::verbs {

/// A device list that frees itself; devices stay valid while it lives (and, once opened, beyond).
class DeviceList {
 public:
  /// @throws Error when the library cannot list devices (other than "there are none").
  explicit DeviceList(const Library& library);
  ~DeviceList();
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  [[nodiscard]] std::vector<std::string> names() const;
  /// Null when there is no device of that name.
  [[nodiscard]] ibv_device* find(const std::string& name) const;

 private:
  const Library& library_;
  ibv_device** list_;
  int count_ = 0;
};

/// The port's attributes; returns 0 or an errno.
int query_port(const Library& library, ibv_context* context, std::uint8_t port, ibv_port_attr& attributes) noexcept;

/// Why this port cannot carry RoCEv2 ("port 1 is DOWN"); empty when it can.
[[nodiscard]] std::string port_problem(std::uint8_t port, const ibv_port_attr& attributes);

/// All devices, each opened, looked at and closed again.
/// @param port  the port that matters; nullopt: a device is usable when any of its ports is
[[nodiscard]] std::vector<DeviceFacts> probe_devices(const Library& library, std::optional<std::uint8_t> port);

/// The first usable port of an open device, or 0 with the reason.
[[nodiscard]] std::uint8_t first_usable_port(const Library& library, ibv_context* context, std::string& problem);

}  // namespace tensorwire::verbs
