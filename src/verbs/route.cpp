#include "verbs/route.hpp"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>

namespace tensorwire::verbs {

namespace {

constexpr std::uint16_t kAnyPort = 9;

Gid gid_of(const sockaddr& address) {
  Gid gid;
  if (address.sa_family == AF_INET6) {
    std::memcpy(gid.bytes.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, gid.bytes.size());
  } else if (address.sa_family == AF_INET) {
    gid.bytes[10] = gid.bytes[11] = 0xff;
    std::memcpy(gid.bytes.data() + 12, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
  }
  return gid;
}

std::string interface_of(const Gid& source) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner{list, freeifaddrs};
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr != nullptr && gid_of(*entry->ifa_addr) == source) return entry->ifa_name;
  }
  // All of 127/8 is the loopback interface, though only 127.0.0.1 is listed.
  return source.is_ipv4() && source.bytes[12] == 127 ? "lo" : "";
}

}  // namespace

std::optional<Route> route_to(const Gid& peer) {
  // Connecting a UDP socket only looks the route up. An IPv6 socket takes IPv4-mapped addresses as well, but not where
  // IPv6 is switched off: each family gets its own socket.
  sockaddr_storage storage{};
  socklen_t length = 0;
  if (peer.is_ipv4()) {
    auto& address = reinterpret_cast<sockaddr_in&>(storage);
    address.sin_family = AF_INET;
    address.sin_port = htons(kAnyPort);
    std::memcpy(&address.sin_addr, peer.bytes.data() + 12, 4);
    length = sizeof address;
  } else {
    auto& address = reinterpret_cast<sockaddr_in6&>(storage);
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(kAnyPort);
    std::memcpy(&address.sin6_addr, peer.bytes.data(), peer.bytes.size());
    length = sizeof address;
  }
  const int fd = socket(storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  const bool found = connect(fd, address, length) == 0 && getsockname(fd, address, &length) == 0;
  close(fd);
  if (!found) return std::nullopt;
  const Gid source = gid_of(*address);
  return Route{source, interface_of(source)};
}

}  // namespace tensorwire::verbs
