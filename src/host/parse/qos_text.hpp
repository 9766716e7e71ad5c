// How tools print an interface's QoS: iproute2's dcb (as JSON), mlnx_qos and Broadcom's niccli.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "host/facts/netdev.hpp"

namespace tensorwire::host {

[[nodiscard]] std::optional<Tsa> tsa_named(std::string_view name);

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

/// `dcb -j ets show dev X`.
struct DcbEts {
  std::array<std::uint8_t, kPriorities> traffic_class{};  ///< of a priority
  std::optional<unsigned> class_count;
  std::optional<Ets> ets;
};
[[nodiscard]] std::optional<DcbEts> parse_dcb_ets(std::string_view text);

/// `dcb -j buffer show dev X`.
struct DcbBuffer {
  std::array<std::uint8_t, kPriorities> buffer{};  ///< of a priority
  std::array<std::uint32_t, kPriorities> bytes{};
};
[[nodiscard]] std::optional<DcbBuffer> parse_dcb_buffer(std::string_view text);

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
  std::optional<Ets> ets;                                       ///< classes that are not printed: kVendor
};
[[nodiscard]] MlnxQos parse_mlnx_qos(std::string_view text);
/// /sys/class/net/X/qos/dscp2prio of MLNX_OFED, which has lines as mlnx_qos prints them.
[[nodiscard]] std::optional<std::array<std::uint8_t, kDscps>> parse_dscp2prio(std::string_view text);

/// `niccli --dev X qos --ets --show`.
struct NiccliQos {
  std::optional<PrioritySet> pfc;
  std::optional<std::array<std::uint8_t, kPriorities>> traffic_class;
  std::optional<DcbApp> app;
};
[[nodiscard]] NiccliQos parse_niccli_qos(std::string_view text);

}  // namespace tensorwire::host
