// How tools print an interface's QoS: iproute2's dcb (as JSON), mlnx_qos and Broadcom's niccli.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "host/facts/netdev.hpp"

namespace tensorwire::host {

/// `dcb -j pfc show dev X`, and the same without -j.
[[nodiscard]] std::optional<PrioritySet> parse_dcb_pfc(std::string_view text);

/// `dcb -j app show dev X`.
struct DcbApp {
  std::array<std::int8_t, kDscps> priority_of_dscp;  ///< -1: no entry
  bool has_dscp = false;
  std::optional<std::uint8_t> priority_of_rocev2;  ///< of UDP port 4791
};
/// An empty table is printed as {} or as nothing.
[[nodiscard]] std::optional<DcbApp> parse_dcb_app(std::string_view text);

/// `dcb -j ets show dev X`: the traffic class of each priority.
[[nodiscard]] std::optional<std::array<std::uint8_t, kPriorities>> parse_dcb_ets(std::string_view text);

/// `dcb -j dcbx show dev X`: whether the host is in control.
[[nodiscard]] std::optional<bool> parse_dcbx(std::string_view text);

/// `mlnx_qos -i X`. What it does not print stays without a value.
struct MlnxQos {
  std::optional<bool> host_controls;
  std::optional<Trust> trust;
  std::optional<std::array<std::uint8_t, kDscps>> priority_of_dscp;
  std::optional<PrioritySet> pfc;
  std::optional<std::array<std::uint8_t, kPriorities>> traffic_class;
  std::optional<std::array<std::uint32_t, kPriorities>> buffer_bytes;
  std::optional<std::array<std::uint8_t, kPriorities>> buffer;  ///< of a priority
};
[[nodiscard]] MlnxQos parse_mlnx_qos(std::string_view text);

/// `niccli --dev X qos --ets --show`.
struct NiccliQos {
  std::optional<PrioritySet> pfc;
  std::optional<std::array<std::uint8_t, kPriorities>> traffic_class;
  std::optional<DcbApp> app;
};
[[nodiscard]] NiccliQos parse_niccli_qos(std::string_view text);

}  // namespace tensorwire::host
