#include "softhca/devices.hpp"

#include <arpa/inet.h>
#include <endian.h>
#include <ifaddrs.h>
#include <linux/if_addr.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/unique_fd.hpp"
#include "softhca/socket_address.hpp"
#include "wire/headers.hpp"

namespace tensorwire::softhca {

namespace {

constexpr std::uint32_t kHeaderReserve = 96;

struct FreeIfaddrs {
  void operator()(ifaddrs* list) const noexcept { freeifaddrs(list); }
};
using IfaddrsPtr = std::unique_ptr<ifaddrs, FreeIfaddrs>;

IfaddrsPtr read_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw system_error("read the network interfaces", errno);
  return IfaddrsPtr{list};
}

std::uint32_t ipv4_of(const sockaddr* socket_address) noexcept {
  sockaddr_in address{};
  std::memcpy(&address, socket_address, sizeof address);
  return ntohl(address.sin_addr.s_addr);
}

std::uint32_t ipv4_of(const ifaddrs& entry) noexcept { return ipv4_of(entry.ifa_addr); }

bool is_ipv4(const ifaddrs& entry) noexcept {
  return entry.ifa_addr != nullptr && entry.ifa_addr->sa_family == AF_INET;
}

bool is_up_ipv4(const ifaddrs& entry) noexcept { return is_ipv4(entry) && (entry.ifa_flags & IFF_UP) != 0; }

/// EUI-64 from a MAC address (RFC 4291 appendix A). An interface without one (loopback) is numbered from its name.
std::uint64_t guid_of(const std::string& name, const std::array<std::uint8_t, 6>& mac) noexcept {
  std::uint64_t guid = 0;
  if (mac == std::array<std::uint8_t, 6>{}) {
    for (const char c : name) guid = mix64(guid ^ static_cast<std::uint8_t>(c));
    guid |= 0x0200'0000'0000'0000;  // locally administered
  } else {
    const std::array<std::uint8_t, 8> eui{
        static_cast<std::uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
    for (const std::uint8_t byte : eui) guid = guid << 8 | byte;
  }
  return htobe64(guid);
}

std::map<std::string, std::array<std::uint8_t, 6>> mac_addresses(const ifaddrs* list) {
  std::map<std::string, std::array<std::uint8_t, 6>> macs;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_PACKET) continue;
    sockaddr_ll link{};
    std::memcpy(&link, entry->ifa_addr, sizeof link);
    std::copy_n(std::begin(link.sll_addr), 6, macs[entry->ifa_name].begin());
  }
  return macs;
}

std::uint64_t read_speed_mbps(const std::string& interface) {
  std::ifstream file{"/sys/class/net/" + interface + "/speed"};
  std::int64_t speed = -1;
  return file >> speed && speed > 0 ? static_cast<std::uint64_t>(speed) : 0;
}

}  // namespace

std::vector<DeviceInfo> list_devices() {
  const IfaddrsPtr list = read_interfaces();
  const auto macs = mac_addresses(list.get());

  std::vector<DeviceInfo> devices;
  bool have_loopback = false;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (!is_up_ipv4(*entry)) continue;
    const std::uint32_t address = ipv4_of(*entry);
    if (is_loopback(address) && std::exchange(have_loopback, true)) continue;
    DeviceInfo device;
    device.interface = entry->ifa_name;
    device.interface_index = static_cast<int>(if_nametoindex(entry->ifa_name));
    device.ipv4 = address;
    device.has_ipv6 = !is_loopback(address) && std::ranges::none_of(devices, [&](const DeviceInfo& earlier) {
      return earlier.interface_index == device.interface_index;
    });
    const auto mac = macs.find(device.interface);
    device.guid = guid_of(device.interface, mac == macs.end() ? std::array<std::uint8_t, 6>{} : mac->second);
    devices.push_back(std::move(device));
  }
  std::ranges::stable_sort(devices, {}, [](const DeviceInfo& device) {
    return std::pair{!is_loopback(device.ipv4), device.interface_index};
  });
  for (std::size_t i = 0; i < devices.size(); ++i) devices[i].name = "soft" + std::to_string(i);
  return devices;
}

transport::MtuCode active_mtu_for(std::uint32_t interface_mtu) noexcept {
  using transport::MtuCode;
  for (const MtuCode code : {MtuCode::k4096, MtuCode::k2048, MtuCode::k1024, MtuCode::k512}) {
    if (transport::mtu_bytes(code) + kHeaderReserve <= interface_mtu) return code;
  }
  return MtuCode::k256;
}

/// A connected socket knows; connecting sends nothing.
std::uint32_t route_mtu(const wire::Gid& source, const wire::Gid& destination, int interface_index) noexcept {
  const UniqueFd fd{::socket(family_of(destination), SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  const SocketAddress from{source, 0, interface_index};
  const SocketAddress to{destination, wire::kRoceUdpPort, interface_index};
  int mtu = 0;
  socklen_t size = sizeof mtu;
  const bool ipv4 = destination.is_ipv4();
  const bool known =
      fd && ::bind(fd.get(), from.data(), from.size()) == 0 && ::connect(fd.get(), to.data(), to.size()) == 0 &&
      ::getsockopt(fd.get(), ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_MTU : IPV6_MTU, &mtu, &size) == 0;
  return known && mtu > 0 ? static_cast<std::uint32_t>(mtu) : 0;
}

PortInfo read_port(const std::string& interface) {
  PortInfo port;
  port.active = false;
  const UniqueFd socket{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  if (!socket || ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0) return port;
  port.active = (request.ifr_flags & IFF_UP) != 0 && (request.ifr_flags & IFF_RUNNING) != 0;
  if (ioctl(socket.get(), SIOCGIFMTU, &request) == 0) {
    port.active_mtu = active_mtu_for(static_cast<std::uint32_t>(request.ifr_mtu));
  }
  port.speed_mbps = read_speed_mbps(interface);
  return port;
}

std::vector<InterfaceAddress> interface_addresses(int interface_index) {
  const IfaddrsPtr list = read_interfaces();
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (!is_ipv4(*entry) || static_cast<int>(if_nametoindex(entry->ifa_name)) != interface_index) continue;
    const std::uint32_t netmask = entry->ifa_netmask == nullptr ? ~std::uint32_t{0} : ipv4_of(entry->ifa_netmask);
    addresses.push_back({.ipv4 = ipv4_of(*entry), .netmask = netmask});
  }
  std::ranges::sort(addresses);
  return addresses;
}

// Line by line: 32 hexadecimal digits, interface index, prefix length, scope, flags (all hexadecimal), name.
std::vector<wire::Gid> bindable_ipv6_addresses(int interface_index) {
  std::vector<wire::Gid> addresses;
  std::ifstream table{"/proc/self/net/if_inet6"};
  std::string digits;
  std::string name;
  unsigned index = 0, prefix = 0, scope = 0, flags = 0;
  while (table >> digits >> std::hex >> index >> prefix >> scope >> flags >> name) {
    const bool unsure = (flags & IFA_F_TENTATIVE) != 0 && (flags & IFA_F_OPTIMISTIC) == 0;
    if (static_cast<int>(index) != interface_index || digits.size() != 32 || unsure || (flags & IFA_F_DADFAILED) != 0) {
      continue;
    }
    wire::Gid gid;
    for (std::size_t i = 0; i < gid.bytes.size(); ++i) {
      std::from_chars(&digits[2 * i], &digits[2 * i] + 2, gid.bytes[i], 16);
    }
    addresses.push_back(gid);
  }
  std::ranges::sort(addresses);
  return addresses;
}

std::optional<std::uint32_t> local_hca_address(const wire::Gid& gid, int interface_index) {
  if (gid.is_ipv4() && is_loopback(gid.ipv4())) return gid.ipv4();
  for (const DeviceInfo& device : list_devices()) {
    if (gid.is_ipv4()) {
      if (device.ipv4 == gid.ipv4()) return device.ipv4;
      continue;
    }
    if (!device.has_ipv6 || (gid.is_link_local() && device.interface_index != interface_index)) continue;
    const auto addresses = bindable_ipv6_addresses(device.interface_index);
    if (std::ranges::binary_search(addresses, gid)) return device.ipv4;
  }
  return std::nullopt;
}

}  // namespace tensorwire::softhca
