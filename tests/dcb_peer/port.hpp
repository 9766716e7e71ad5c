// One Ethernet port's Data Center Bridging state and the habits of the driver that keeps it, in a text file that
// several processes share: what the kernel and a NIC hold on a real host. netlink.cpp speaks for it.
#pragma once

#include <linux/dcbnl.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace dcb_peer {

/// As the kernel's DCB replies carry it: 0, or an errno.
using Status = int;

enum class Driver : std::uint8_t {
  kMlx5,       ///< DSCP entries only; the first switches trust to DSCP; a change of PFC flaps the link
  kBnxt,       ///< also ports and Ethertypes; refuses everything with EINVAL while firmware owns DCBX
  kVirtual,    ///< a virtual function: EOPNOTSUPP
  kDeaf,       ///< says yes to everything and changes nothing, as where lldpad overwrites it at once
  kForgetful,  ///< as mlx5, but what it says of PFC is not what the NIC does: counters of pauses stay away
};

struct Port {
  Driver driver = Driver::kMlx5;
  std::uint8_t dcbx = DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_IEEE;
  ieee_pfc pfc{};
  ieee_ets ets{};
  dcbnl_buffer buffer{};
  std::map<std::pair<std::uint8_t, std::uint16_t>, std::uint8_t> apps;  ///< (selector, protocol): priority
  unsigned link_flaps = 0;
  int fail_at = 0;  ///< counts down with each change; the one at 1 fails with ENOMEM

  [[nodiscard]] Status set_pfc(const ieee_pfc& wanted);
  [[nodiscard]] Status set_ets(const ieee_ets& wanted);
  [[nodiscard]] Status set_app(const dcb_app& app);
  [[nodiscard]] Status delete_app(const dcb_app& app);
  [[nodiscard]] Status set_dcbx(std::uint8_t mode);

 private:
  [[nodiscard]] Status may_write();
};

/// All ports of the file that DCB_PEER names, locked for as long as this lives, so that requests do not mix.
class Ports {
 public:
  /// Exits the process with a line on standard error when the file is unreadable or makes no sense.
  explicit Ports(const std::string& path);
  ~Ports();
  Ports(const Ports&) = delete;
  Ports& operator=(const Ports&) = delete;

  /// nullptr when the file knows no such interface.
  [[nodiscard]] Port* find(const std::string& interface);
  void write();

 private:
  std::string path_;
  int fd_ = -1;
  std::map<std::string, Port> ports_;
};

}  // namespace dcb_peer
