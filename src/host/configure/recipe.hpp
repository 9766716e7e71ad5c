// How each family of NICs is told what a port should be like: which command sets a part, and which sets it back. Data,
// so that a family is added by adding rows, and so that the stand-alone script says the same as the program does.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorwire::host {

/// In the order in which it is safe to set them. PFC comes last: changing it takes the link down for a moment.
enum class Part : std::uint8_t {
  kMtu,
  kDcbx,          ///< the host decides, not the firmware or the switch
  kPause,         ///< 802.3x pause, which stops all priorities, is off
  kTrust,         ///< packets are sorted by DSCP; only where that is a setting of its own
  kDscp,          ///< which priority a DSCP leads to
  kUdpPort,       ///< which priority RoCEv2's UDP port leads to
  kTrafficClass,  ///< the lossless priority has a queue and a share of its own, CNPs go before all others
  kEcnNp,         ///< ECN marks are answered with CNPs
  kEcnRp,         ///< CNPs are obeyed
  kCnpDscp,
  kCnpVlanPriority,  ///< of CNPs on a VLAN
  kCmTos,            ///< what RDMA-CM puts on connections that ask for nothing
  kNumaBalancing,    ///< the kernel moves no pages that a NIC writes to
  // Only where another RDMA interface is in the same subnet:
  kArpIgnore,    ///< ARP is answered where the address is
  kArpAnnounce,  ///< and asked with an address of that interface
  kRpFilter,     ///< what comes back over another interface is let in
  kPfc,
};
inline constexpr std::size_t kParts = static_cast<std::size_t>(Part::kPfc) + 1;

/// How a person calls it: "PFC".
[[nodiscard]] std::string_view name_of(Part part) noexcept;

/// Commands, one a line, in the form of action_of(). {if}, {dev}, {port}, {pci}: the interface, the RDMA device, its
/// port number, its PCI address; {priority}: the lossless one; {value}: what is to be; {list}: the same for all eight
/// priorities, separated by commas; {tsa}, {bw}: likewise of the traffic classes. A line with {code} and {to} is
/// repeated for each entry "code:to" of the value.
struct RecipeStep {
  Part part;
  std::string_view set;
  std::string_view undo;         ///< likewise, with what was; empty: it cannot be set back, which is said before
  std::string_view remove = {};  ///< of entries that were not there
};

struct Recipe {
  std::string_view name;     ///< "mlx5 (in-box driver)"
  std::string_view drivers;  ///< of the kernel, separated by blanks
  bool ofed;                 ///< needs the files of MLNX_OFED in sysfs
  unsigned cnp_priority;
  std::span<const RecipeStep> steps;

  [[nodiscard]] const RecipeStep* step(Part part) const noexcept;
};

[[nodiscard]] std::span<const Recipe> recipes() noexcept;
/// nullptr where nobody has written down how such a NIC is configured.
[[nodiscard]] const Recipe* find_recipe(std::string_view driver, bool ofed) noexcept;

using Names = std::vector<std::pair<std::string_view, std::string>>;
/// The lines of `commands` with {value} put in, and the {names} replaced.
[[nodiscard]] std::vector<std::string> filled(std::string_view commands, const Names& names, const std::string& value);

}  // namespace tensorwire::host
