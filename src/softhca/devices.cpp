#include "softhca/devices.hpp"

#include <arpa/inet.h>
#include <endian.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

#include "base/error.hpp"
#include "base/random.hpp"
#include "softhca/unique_fd.hpp"

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

bool is_local_address(std::uint32_t ipv4) {
  if (is_loopback(ipv4)) return true;
  const IfaddrsPtr list = read_interfaces();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (is_up_ipv4(*entry) && ipv4_of(*entry) == ipv4) return true;
  }
  return false;
}

}  // namespace tensorwire::softhca
