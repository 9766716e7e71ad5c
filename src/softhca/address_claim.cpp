#include "softhca/address_claim.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>

#include "base/error.hpp"
#include "base/random.hpp"
#include "softhca/devices.hpp"
#include "softhca/socket_address.hpp"

namespace tensorwire::softhca {

namespace {

constexpr int kBacklog = 64;

std::uint32_t abstract_address(const std::string& name, sockaddr_un& out) noexcept {
  out = sockaddr_un{};
  out.sun_family = AF_UNIX;
  name.copy(out.sun_path + 1, sizeof out.sun_path - 1);  // a leading zero byte: the abstract namespace
  return static_cast<std::uint32_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

std::string claim_name(std::uint32_t ipv4, std::uint8_t slot) {
  const std::string name = "tensorwire/hca/" + wire::ipv4_text(ipv4);
  return is_loopback(ipv4) ? name : fmt::format("{}/{}", name, slot);
}

/// Nothing when the name is taken.
UniqueFd bind_name(int type, std::uint32_t ipv4, const sockaddr_un& address, std::uint32_t length) {
  UniqueFd fd{::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd) throw system_error("open the ownership socket of " + wire::ipv4_text(ipv4), errno);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0) return fd;
  if (errno == EADDRINUSE) return UniqueFd{};
  throw system_error("claim address " + wire::ipv4_text(ipv4), errno);
}

UniqueFd listen_at(std::uint32_t ipv4, std::uint8_t slot) {
  sockaddr_un address{};
  const std::uint32_t length = rendezvous_address(ipv4, slot, address);
  UniqueFd fd = bind_name(SOCK_SEQPACKET, ipv4, address, length);
  if (fd && ::listen(fd.get(), kBacklog) != 0) throw system_error("claim address " + wire::ipv4_text(ipv4), errno);
  return fd;
}

UniqueFd neighbours_at(std::uint32_t ipv4, std::uint8_t slot) {
  sockaddr_un address{};
  const std::uint32_t length = neighbour_address(ipv4, slot, address);
  UniqueFd fd = bind_name(SOCK_DGRAM, ipv4, address, length);
  if (!fd) throw system_error("claim a slot of " + wire::ipv4_text(ipv4), EADDRINUSE, "Start again");
  // Who sends is what the kernel says, not what the message says.
  const int on = 1;
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) {
    throw system_error("claim a slot of " + wire::ipv4_text(ipv4), errno);
  }
  return fd;
}

/// The user of an Hca at `ipv4` that is not ours.
std::optional<uid_t> other_user_at(std::uint32_t ipv4) {
  for (unsigned slot = kLowestSlot; slot <= kHighestSlot; ++slot) {
    const UniqueFd fd{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    sockaddr_un address{};
    const socklen_t length = rendezvous_address(ipv4, static_cast<std::uint8_t>(slot), address);
    if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) continue;
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid != ::geteuid()) return peer.uid;
  }
  return std::nullopt;
}

/// Port 4791 of an address is in somebody else's hands, although its claim is ours.
Error port_taken(const wire::Gid& gid) {
  const std::string what = "bind UDP port 4791 on " + address_text(gid);
  if (gid.is_ipv4() && !is_loopback(gid.ipv4())) {
    if (const auto user = other_user_at(gid.ipv4())) {
      return Error{what,
                   fmt::format("{}: it is in use by Tensorwire processes of user {}, and an address can be shared only "
                               "by processes of one user",
                               errno_text(EADDRINUSE), *user),
                   "Run as that user, or give the interface a second address"};
    }
  }
  return Error{
      what, errno_text(EADDRINUSE) + ": a socket that is not a Tensorwire HCA holds it",
      "Find it with `ss -lunp sport = :4791` and stop it (kernel soft-RoCE and other RoCE tools bind 0.0.0.0:4791)"};
}

std::optional<AddressClaim> claim_own(std::uint32_t ipv4, std::uint8_t slot) {
  UniqueFd rendezvous = listen_at(ipv4, slot);
  if (!rendezvous) return std::nullopt;
  UniqueFd udp = bind_roce_port(wire::Gid::from_ipv4(ipv4), 0, false);
  return AddressClaim{.ipv4 = ipv4,
                      .slot = slot,
                      .shared = false,
                      .rendezvous = std::move(rendezvous),
                      .neighbours = UniqueFd{},
                      .udp = std::move(udp)};
}

/// From a random slot up: the slot of a process that died is not soon another's, so what its peers still send to it
/// finds nobody.
std::optional<AddressClaim> claim_share(std::uint32_t ipv4, std::uint8_t first) {
  for (unsigned i = 0; i < kSlots; ++i) {
    const auto slot = static_cast<std::uint8_t>(kLowestSlot + (first - kLowestSlot + i) % kSlots);
    UniqueFd rendezvous = listen_at(ipv4, slot);
    if (!rendezvous) continue;
    UniqueFd neighbours = neighbours_at(ipv4, slot);
    UniqueFd udp = bind_roce_port(wire::Gid::from_ipv4(ipv4), 0, true);
    return AddressClaim{.ipv4 = ipv4,
                        .slot = slot,
                        .shared = true,
                        .rendezvous = std::move(rendezvous),
                        .neighbours = std::move(neighbours),
                        .udp = std::move(udp)};
  }
  return std::nullopt;
}

}  // namespace

std::uint32_t rendezvous_address(std::uint32_t ipv4, std::uint8_t slot, sockaddr_un& out) noexcept {
  return abstract_address(claim_name(ipv4, slot), out);
}

std::uint32_t neighbour_address(std::uint32_t ipv4, std::uint8_t slot, sockaddr_un& out) noexcept {
  return abstract_address(claim_name(ipv4, slot) + "/neighbour", out);
}

UniqueFd bind_roce_port(const wire::Gid& gid, int interface_index, bool shared) {
  UniqueFd fd{::socket(family_of(gid), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!fd) throw system_error("open a UDP socket", errno);
  const int on = 1;
  if (shared && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0) {
    throw system_error("share UDP port 4791 on " + address_text(gid), errno);
  }
  const SocketAddress address{gid, wire::kRoceUdpPort, interface_index};
  if (::bind(fd.get(), address.data(), address.size()) == 0) return fd;
  if (errno == EADDRINUSE) throw port_taken(gid);
  throw system_error("bind UDP port 4791 on " + address_text(gid), errno);
}

std::optional<AddressClaim> try_claim(std::uint32_t ipv4) {
  const auto slot = static_cast<std::uint8_t>(kLowestSlot + Random{entropy64()}.below(kSlots));
  return is_loopback(ipv4) ? claim_own(ipv4, slot) : claim_share(ipv4, slot);
}

AddressClaim claim_address(const DeviceInfo& device) {
  if (!is_loopback(device.ipv4)) {
    if (auto claim = try_claim(device.ipv4)) return std::move(*claim);
    throw system_error(fmt::format("open device {}: all {} process slots of {} on {} are taken", device.name, kSlots,
                                   wire::ipv4_text(device.ipv4), device.interface),
                       EBUSY, "End some of the processes that use it");
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
