// RDMA devices, as /sys/class/infiniband shows them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/fact.hpp"
#include "host/facts/address.hpp"

namespace tensorwire::host {

/// By kernel driver; what is known of a family decides remedies, index habits and counter names. Tensorwire's own
/// devices are of user space: the kernel knows nothing of them.
enum class NicFamily : std::uint8_t {
  kMlx5,
  kMlx4,
  kBroadcom,
  kIntel,
  kQlogic,
  kPensando,
  kEfa,
  kRxe,
  kSiw,
  kUserSpace,
  kOther
};
[[nodiscard]] std::string_view to_string(NicFamily family) noexcept;

enum class LinkLayer : std::uint8_t { kEthernet, kInfiniband, kUnspecified };
enum class GidVersion : std::uint8_t { kRoceV1, kRoceV2 };

/// An entry of a GID table that is not empty.
struct Gid {
  unsigned index = 0;
  Address address;
  Fact<GidVersion> version;  ///< unknown with EINVAL where the address belongs to another network namespace
  Fact<std::string> netdev;

  [[nodiscard]] bool is_v2() const { return version.is(GidVersion::kRoceV2); }
  /// What two hosts in different subnets can talk with.
  [[nodiscard]] bool is_usable() const { return is_v2() && address.is_routable(); }
};

/// An entry that is empty. Why its type cannot be read is kept: programs that expect EINVAL stumble over another errno.
struct EmptyGid {
  unsigned index = 0;
  Fact<GidVersion> version;
};

using Counters = std::map<std::string, std::uint64_t, std::less<>>;

/// The counter; nothing where the driver has none of that name, which does not mean 0.
[[nodiscard]] std::optional<std::uint64_t> counter(const Fact<Counters>& counters, std::string_view name);

struct RdmaPort {
  unsigned number = 1;
  std::string path;              ///< "/sys/class/infiniband/mlx5_0/ports/1"
  Fact<std::string> state;       ///< "ACTIVE", "DOWN", "INIT", "ARMED"
  Fact<std::string> phys_state;  ///< "LinkUp", "Disabled", "Polling"
  Fact<double> rate_gbps;
  Fact<unsigned> active_mtu;    ///< as libibverbs shows it
  Fact<LinkLayer> link_layer;   ///< the LID says nothing: irdma reports 1 on Ethernet
  Fact<std::vector<Gid>> gids;  ///< without the empty entries
  std::vector<EmptyGid> empty_gids;
  Fact<unsigned> gid_slots;  ///< length of the table
  Fact<Counters> counters;   ///< counters/ and hw_counters/ together
  /// What the kernel sets as traffic class whatever a program asks for (MLNX_OFED); no value: nothing is forced.
  Fact<std::optional<unsigned>> forced_traffic_class;

  [[nodiscard]] bool is_roce() const { return link_layer.is(LinkLayer::kEthernet); }
  [[nodiscard]] bool is_active() const { return state.is("ACTIVE"); }
};

struct RdmaDevice {
  std::string name;
  NicFamily family = NicFamily::kOther;
  Fact<std::string> driver;       ///< "mlx5_core"; soft devices have none
  Fact<std::string> pci_address;  ///< "0000:3b:00.0"; soft devices have none
  Fact<std::string> firmware;
  Fact<std::string> system_guid;   ///< equal for the functions of one card
  Fact<std::string> verbs_node;    ///< "uverbs0"
  Fact<int> node_error;            ///< errno of opening /dev/infiniband/uverbs0 here; 0: it opens
  Fact<std::string> dmabuf_error;  ///< what registering a DMA-BUF that does not exist ends with: "EBADF" where it could
  Fact<Counters> dcqcn;            ///< parameters of congestion control (mlx5, as root)
  /// Of the vendor's firmware tool (mlxconfig), by name: "force_relax(1)". Asking takes seconds, so it is not always
  /// asked.
  Fact<std::map<std::string, std::string, std::less<>>> firmware_settings;
  Fact<unsigned> verbs_abi;  ///< version of the driver's own interface to its provider library
  std::vector<RdmaPort> ports;

  [[nodiscard]] bool is_of_user_space() const { return family == NicFamily::kUserSpace; }
};

}  // namespace tensorwire::host
