// A GID and a UDP port as the kernel's socket calls want them, and back again. One place knows that an IPv4-mapped GID
// is an AF_INET address and that a link-local one needs the index of its interface.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>

#include "wire/frame.hpp"
#include "wire/gid.hpp"

namespace tensorwire::softhca {

// <linux/in6.h> has them, and cannot be included beside <netinet/in.h>.
inline constexpr int kIpv6Flowinfo = 11;      ///< IPV6_FLOWINFO: tells the label of what arrives
inline constexpr int kIpv6FlowinfoSend = 33;  ///< IPV6_FLOWINFO_SEND: takes the label from the address

class SocketAddress {
 public:
  /// To be filled by the kernel.
  SocketAddress() noexcept = default;
  /// `flow_label`: IPv6 only, of a socket with IPV6_FLOWINFO_SEND.
  SocketAddress(const wire::Gid& gid, std::uint16_t port, int interface_index, std::uint32_t flow_label = 0) noexcept {
    if (gid.is_ipv4()) {
      address_.v4.sin_family = AF_INET;
      address_.v4.sin_port = htons(port);
      address_.v4.sin_addr.s_addr = htonl(gid.ipv4());
      size_ = sizeof address_.v4;
    } else {
      address_.v6.sin6_family = AF_INET6;
      address_.v6.sin6_port = htons(port);
      std::memcpy(&address_.v6.sin6_addr, gid.bytes.data(), gid.bytes.size());
      address_.v6.sin6_flowinfo = htonl(flow_label & wire::kFlowLabelMask);
      if (gid.is_link_local()) address_.v6.sin6_scope_id = static_cast<std::uint32_t>(interface_index);
      size_ = sizeof address_.v6;
    }
  }

  [[nodiscard]] sockaddr* data() noexcept { return &address_.any; }
  [[nodiscard]] const sockaddr* data() const noexcept { return &address_.any; }
  [[nodiscard]] socklen_t size() const noexcept { return size_; }

  [[nodiscard]] wire::Gid gid() const noexcept {
    if (address_.any.sa_family == AF_INET) return wire::Gid::from_ipv4(ntohl(address_.v4.sin_addr.s_addr));
    wire::Gid gid;
    std::memcpy(gid.bytes.data(), &address_.v6.sin6_addr, gid.bytes.size());
    return gid;
  }
  [[nodiscard]] std::uint16_t port() const noexcept {
    return ntohs(address_.any.sa_family == AF_INET ? address_.v4.sin_port : address_.v6.sin6_port);
  }

 private:
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6{};
  } address_;
  socklen_t size_ = sizeof(sockaddr_in6);
};

/// The address family of a GID's sockets.
[[nodiscard]] inline int family_of(const wire::Gid& gid) noexcept { return gid.is_ipv4() ? AF_INET : AF_INET6; }

}  // namespace tensorwire::softhca
