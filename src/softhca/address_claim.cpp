#include "softhca/address_claim.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/error.hpp"
#include "softhca/devices.hpp"
#include "wire/headers.hpp"

namespace tensorwire::softhca {

namespace {

constexpr int kBacklog = 64;

/// Port 4791 of an address whose lock we hold is in somebody else's hands.
Error port_taken(std::uint32_t ipv4) {
  return Error{
      "bind UDP port 4791 on " + wire::ipv4_text(ipv4),
      errno_text(EADDRINUSE) + ": a socket that is not a Tensorwire HCA holds it",
      "Find it with `ss -lunp sport = :4791` and stop it (kernel soft-RoCE and other RoCE tools bind 0.0.0.0:4791)"};
}

UniqueFd listen_at(std::uint32_t ipv4) {
  UniqueFd fd{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd) throw system_error("open the ownership socket of " + wire::ipv4_text(ipv4), errno);
  sockaddr_un address{};
  const socklen_t length = rendezvous_address(ipv4, address);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE) return UniqueFd{};
    throw system_error("claim address " + wire::ipv4_text(ipv4), errno);
  }
  if (::listen(fd.get(), kBacklog) != 0) throw system_error("claim address " + wire::ipv4_text(ipv4), errno);
  return fd;
}

UniqueFd bind_udp(std::uint32_t ipv4) {
  UniqueFd fd{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd) throw system_error("open a UDP socket", errno);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(wire::kRoceUdpPort);
  address.sin_addr.s_addr = htonl(ipv4);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == EADDRINUSE) throw port_taken(ipv4);
    throw system_error("bind UDP port 4791 on " + wire::ipv4_text(ipv4), errno);
  }
  return fd;
}

}  // namespace

std::uint32_t rendezvous_address(std::uint32_t ipv4, sockaddr_un& out) noexcept {
  out = sockaddr_un{};
  out.sun_family = AF_UNIX;
  const std::string name = "tensorwire/hca/" + wire::ipv4_text(ipv4);
  name.copy(out.sun_path + 1, sizeof out.sun_path - 1);  // a leading zero byte: the abstract namespace
  return static_cast<std::uint32_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

std::optional<AddressClaim> try_claim(std::uint32_t ipv4) {
  UniqueFd rendezvous = listen_at(ipv4);
  if (!rendezvous) return std::nullopt;
  UniqueFd udp = bind_udp(ipv4);
  return AddressClaim{.ipv4 = ipv4, .rendezvous = std::move(rendezvous), .udp = std::move(udp)};
}

AddressClaim claim_address(const DeviceInfo& device) {
  if (!is_loopback(device.ipv4)) {
    if (auto claim = try_claim(device.ipv4)) return std::move(*claim);
    throw system_error("open device " + device.name + ": address " + wire::ipv4_text(device.ipv4) + " of " +
                           device.interface + " is owned by another process",
                       EBUSY, "One process at a time can use it; end the other one or use soft0 (loopback)");
  }
  // A foreign socket on one loopback address (a test tool on 127.0.0.1, say) leaves the others usable; one on 0.0.0.0
  // is in the way of all of them, and then the first refusal tells the story.
  std::optional<Error> refused;
  for (std::uint32_t last_octet = 1; last_octet < 255; ++last_octet) {
    try {
      if (auto claim = try_claim((127U << 24) | last_octet)) return std::move(*claim);
    } catch (const Error& error) {
      if (!refused) refused = error;
    }
  }
  if (refused) throw Error{*refused};
  throw system_error("open device " + device.name + ": all of 127.0.0.1 to 127.0.0.254 are owned", EBUSY,
                     "End some of the processes that use it");
}

}  // namespace tensorwire::softhca
