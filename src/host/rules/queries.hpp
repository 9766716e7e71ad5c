// What several rules ask of the facts: which ports the job will use, how its packets are marked, where those ride.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/facts/host.hpp"

namespace tensorwire::host {

/// A port with what belongs to it.
struct PortView {
  const RdmaDevice* device = nullptr;
  const RdmaPort* port = nullptr;
  const Netdev* netdev = nullptr;  ///< null where it is not known

  [[nodiscard]] bool is_software() const {
    return device->family == NicFamily::kRxe || device->family == NicFamily::kSiw || device->is_of_user_space();
  }
};

/// NCCL_IB_HCA: names are prefixes unless '=' stands before the list; '^' excludes.
class HcaFilter {
 public:
  /// Everything fits where it is not set.
  explicit HcaFilter(const Setting* setting);
  [[nodiscard]] bool fits(std::string_view device, unsigned port) const;
  [[nodiscard]] bool is_set() const noexcept { return !names_.empty(); }
  [[nodiscard]] bool is_exact() const noexcept { return exact_; }
  [[nodiscard]] bool excludes() const noexcept { return excludes_; }
  /// As written, without ports.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

 private:
  bool exact_ = false;
  bool excludes_ = false;
  std::vector<std::string> names_;
  std::vector<int> ports_;  ///< of each name; -1: any
};

/// All ports.
[[nodiscard]] std::vector<PortView> all_ports(const Host& host);
/// Active RoCE ports that NCCL_IB_HCA lets through.
[[nodiscard]] std::vector<PortView> roce_ports(const Host& host);
/// The same, once for each interface that QoS can be read of: no software devices, no ports without interface.
[[nodiscard]] std::vector<PortView> qos_ports(const Host& host);

/// The RoCE v2 entry with a routable address, IPv4 before IPv6, as NCCL chooses; nullptr where there is none. The table
/// must be known.
[[nodiscard]] const Gid* best_gid(const RdmaPort& port);

/// The traffic class (ToS byte) of the job's packets.
struct Marking {
  unsigned tos = 0;
  std::string where;  ///< "NCCL_IB_TC=104 (environment)"

  [[nodiscard]] unsigned dscp() const noexcept { return tos >> 2; }
};
/// What the kernel forces, else NCCL_IB_TC, else NCCL's default of 0 where a job is looked at; nothing where nobody
/// knows.
[[nodiscard]] std::optional<Marking> marking_of(const Host& host, const RdmaPort& port);
/// The priority that the interface puts such packets into; nothing where its QoS is not known.
[[nodiscard]] std::optional<unsigned> priority_of(const Netdev& netdev, const Marking& marking);

/// What a port counts of congestion control, under the names of mlx5, irdma or bnxt; nothing where it does not.
struct CongestionCounters {
  std::optional<std::uint64_t> marked;   ///< packets that came with a mark
  std::optional<std::uint64_t> sent;     ///< notifications: the notification point works
  std::optional<std::uint64_t> handled;  ///< notifications that came and were obeyed: the reaction point works
  std::optional<std::uint64_t> ignored;
};
[[nodiscard]] CongestionCounters congestion_counters(const RdmaPort& port);

/// The interface of the default route, for ranks to meet over; "IFACE" where there is none.
[[nodiscard]] std::string meeting_interface(const Host& host);

/// Priority 3 where it is among them, else the lowest; 3 where there is none.
[[nodiscard]] unsigned main_priority(const PrioritySet& priorities);

/// A number as C programs read it: "0x68", "010" is 8.
[[nodiscard]] std::optional<unsigned> c_number(std::string_view text);
/// "NCCL_IB_TC=26 (environment)".
[[nodiscard]] std::string shown(std::string_view name, const Setting& setting);
/// "3", "3 and 4", "none".
[[nodiscard]] std::string shown(const PrioritySet& priorities);

}  // namespace tensorwire::host
