// Network interfaces, and how they sort packets into priorities.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/fact.hpp"
#include "host/facts/rdma.hpp"

namespace tensorwire::host {

inline constexpr unsigned kPriorities = 8;
inline constexpr unsigned kDscps = 64;

enum class Trust : std::uint8_t { kPcp, kDscp };

using PrioritySet = std::bitset<kPriorities>;

/// How it is chosen which traffic class sends next (IEEE 802.1Qaz).
enum class Tsa : std::uint8_t { kStrict, kShaper, kEts, kVendor };
/// "strict", "cbs", "ets", "vendor": as `dcb` and mlnx_qos write them.
[[nodiscard]] std::string_view to_string(Tsa algorithm) noexcept;

/// Of each traffic class.
struct Ets {
  std::array<Tsa, kPriorities> algorithm{};
  std::array<std::uint8_t, kPriorities> share{};  ///< per cent; counts for those with kEts
};

/// Global (802.3x) flow control, which stops all priorities at once.
struct GlobalPause {
  bool receives = false;
  bool sends = false;
};

/// Data centre bridging of one interface.
struct Qos {
  Fact<Trust> trust;
  Fact<std::array<std::uint8_t, kDscps>> priority_of_dscp;
  Fact<PrioritySet> pfc;                                      ///< priorities that are lossless
  Fact<std::array<std::uint8_t, kPriorities>> traffic_class;  ///< of a priority
  Fact<Ets> ets;
  Fact<unsigned> class_count;  ///< how many traffic classes the device has
  Fact<bool> host_controls;    ///< false: the firmware's DCBX does
  Fact<PrioritySet> ecn_np;    ///< priorities whose CE marks are answered with CNPs
  Fact<PrioritySet> ecn_rp;    ///< priorities that slow down when CNPs come
  Fact<unsigned> cnp_dscp;
  Fact<unsigned> cnp_vlan_priority;  ///< of CNPs on a VLAN
  Fact<GlobalPause> pause;
  Fact<std::array<std::uint32_t, kPriorities>> buffer_bytes;  ///< of the port's receive buffers (mlnx_qos shows them)
  Fact<std::array<std::uint8_t, kPriorities>> buffer;         ///< of a priority
};

struct Netdev {
  std::string name;
  Fact<unsigned> mtu;
  Fact<std::string> state;          ///< "up", "down"
  Fact<std::string> pci_address;    ///< of physical ones
  std::string bond;                 ///< of a slave: the bond it belongs to
  std::vector<std::string> slaves;  ///< of a bond
  bool is_virtual_function = false;
  bool has_rdma = false;  ///< only of those are the following read
  bool ofed = false;      ///< MLNX_OFED's driver: it has files for ECN, and mlnx_qos comes with it
  Qos qos;
  Fact<Counters> statistics;  ///< of the driver, as `ethtool -S` shows them
  Fact<int> arp_ignore, arp_announce, rp_filter;
};

/// A subnet that an interface is directly connected to.
struct Subnet {
  std::string netdev;
  Address network;
  unsigned length = 0;  ///< of the prefix
  bool operator==(const Subnet&) const = default;
};

struct Route {
  std::string netdev;
  Address network;
  unsigned length = 0;             ///< of the prefix; 0: the default route
  std::optional<Address> gateway;  ///< none: `network` is a subnet of the interface
};

/// What ARP or neighbour discovery knows of an address.
struct Neighbour {
  std::string netdev;
  Address address;
  std::string state;  ///< "REACHABLE", "STALE", "FAILED", "INCOMPLETE", ...
};

}  // namespace tensorwire::host
