#include "verbs/device_choice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace tensorwire::verbs {

namespace {

constexpr std::string_view kSoftPrefix = "soft";
constexpr std::string_view kLoopback = "lo";

std::string names_of(std::span<const DeviceFacts> devices) {
  std::string text;
  for (const DeviceFacts& device : devices) text += fmt::format("{}{}", text.empty() ? "" : ", ", device.name);
  return text;
}

std::string problems_of(std::span<const DeviceFacts> devices) {
  std::string text;
  for (const DeviceFacts& device : devices) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", device.name, device.problem);
  }
  return text;
}

DeviceChoice asked_for(std::span<const DeviceFacts> devices, std::string_view wanted) {
  const auto found = std::ranges::find(devices, wanted, &DeviceFacts::name);
  if (found == devices.end()) {
    throw Error{fmt::format("open device {}", wanted), "no such RDMA device on this host",
                devices.empty() ? "There is none; --device soft uses the user-space HCA"
                                : fmt::format("Devices here: {}; or --device soft", names_of(devices))};
  }
  if (!found->problem.empty()) {
    throw Error{fmt::format("open device {}", wanted), found->problem,
                "Repair it, or ask for the user-space HCA with --device soft"};
  }
  return {Provider::kSystem, found->name, "asked for"};
}

}  // namespace

bool is_soft_name(std::string_view name) noexcept {
  if (!name.starts_with(kSoftPrefix)) return false;
  return std::ranges::all_of(name.substr(kSoftPrefix.size()), [](char c) { return c >= '0' && c <= '9'; });
}

std::string choose_soft_device(std::span<const std::string> names,
                               const std::function<SoftDeviceFacts(const std::string&)>& look_at, const Route* route,
                               bool has_peers_elsewhere) {
  const std::string what = "choose a device of the user-space HCA";
  if (names.empty()) throw Error{what, "there is none"};
  const bool any_will_do = route == nullptr || route->netdev == kLoopback;
  if (any_will_do && !has_peers_elsewhere) return names.front();
  const auto leads_there = [&](const SoftDeviceFacts::Address& address) {
    if (address.netdev == kLoopback) return false;
    return any_will_do || address.gid == route->source || (!route->netdev.empty() && address.netdev == route->netdev);
  };
  for (const std::string& name : names) {
    if (std::ranges::any_of(look_at(name).addresses, leads_there)) return name;
  }
  if (any_will_do) {
    throw Error{what, "peers are on other hosts, and there is only that of the loopback interface",
                "Give this host a network interface with an IP address that is up"};
  }
  throw Error{what,
              fmt::format("none is on {}, the interface that routes to the peer",
                          route->netdev.empty() ? to_string(route->source) : route->netdev),
              "Name one with --device softN"};
}

DeviceChoice choose_device(std::span<const DeviceFacts> system_devices, std::string_view wanted) {
  if (is_soft_name(wanted)) {
    return {Provider::kSoft, wanted == kSoftPrefix ? std::string{} : std::string{wanted}, "asked for"};
  }
  if (!wanted.empty()) return asked_for(system_devices, wanted);
  if (system_devices.empty()) return {Provider::kSoft, {}, "no RDMA device on this host"};

  const auto usable = std::ranges::find_if(system_devices, [](const DeviceFacts& d) { return d.problem.empty(); });
  if (usable == system_devices.end()) {
    throw Error{"choose an RDMA device", "this host has one, but it cannot be used: " + problems_of(system_devices),
                "Repair it, or ask for the user-space HCA with --device soft"};
  }
  const auto usable_count =
      std::ranges::count_if(system_devices, [](const DeviceFacts& d) { return d.problem.empty(); });
  return {Provider::kSystem, usable->name,
          usable_count == 1 ? "the only usable RDMA device"
                            : fmt::format("the first of {} usable RDMA devices", usable_count)};
}

}  // namespace tensorwire::verbs
