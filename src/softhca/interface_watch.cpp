#include "softhca/interface_watch.hpp"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/log.hpp"
#include "wire/gid.hpp"

namespace tensorwire::softhca {

namespace {

/// A link message grows with the virtual functions of the interface; what is cut all the same is told as incomplete.
constexpr std::size_t kReceiveBytes = 32 * 1024;

/// The fixed part behind the netlink header, or nothing where the message is too short for it.
template <typename Body>
std::optional<Body> body_of(std::span<const std::byte> message) noexcept {
  if (message.size() < NLMSG_HDRLEN + sizeof(Body)) return std::nullopt;
  Body body;
  std::memcpy(&body, message.data() + NLMSG_HDRLEN, sizeof body);
  return body;
}

void parse_link(std::span<const std::byte> message, bool gone, int interface_index,
                InterfaceChanges& changes) noexcept {
  const auto link = body_of<ifinfomsg>(message);
  if (!link) {
    changes.incomplete = true;
    return;
  }
  // Bridges tell of their ports in the same group: a port that leaves its bridge is not gone.
  if (link->ifi_family != AF_UNSPEC || link->ifi_index != interface_index) return;
  const bool running = !gone && (link->ifi_flags & IFF_UP) != 0 && (link->ifi_flags & IFF_RUNNING) != 0;
  changes.running = running;
  changes.stopped = changes.stopped || !running;
}

void parse_address(std::span<const std::byte> message, bool gone, int interface_index,
                   InterfaceChanges& changes) noexcept {
  const auto address = body_of<ifaddrmsg>(message);
  if (!address) {
    changes.incomplete = true;
    return;
  }
  if (address->ifa_index != static_cast<std::uint32_t>(interface_index)) return;
  if (address->ifa_family == AF_INET6) changes.ipv6_changed = true;
  if (address->ifa_family == AF_INET) (gone ? changes.address_removed : changes.address_added) = true;
}

void parse_message(std::uint16_t type, std::span<const std::byte> message, int interface_index,
                   InterfaceChanges& changes) noexcept {
  switch (type) {
    case RTM_NEWLINK:
    case RTM_DELLINK:
      return parse_link(message, type == RTM_DELLINK, interface_index, changes);
    case RTM_NEWADDR:
    case RTM_DELADDR:
      return parse_address(message, type == RTM_DELADDR, interface_index, changes);
    case NLMSG_OVERRUN:
      changes.incomplete = true;
      return;
    default:
      return;
  }
}

UniqueFd open_socket() noexcept {
  UniqueFd fd{::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE)};
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return UniqueFd{};
  return fd;
}

}  // namespace

void parse_changes(std::span<const std::byte> messages, int interface_index, InterfaceChanges& changes) noexcept {
  while (!messages.empty()) {
    nlmsghdr header;
    if (messages.size() < sizeof header) break;
    std::memcpy(&header, messages.data(), sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > messages.size()) break;
    parse_message(header.nlmsg_type, messages.first(header.nlmsg_len), interface_index, changes);
    const std::size_t padded = (std::size_t{header.nlmsg_len} + NLMSG_ALIGNTO - 1) / NLMSG_ALIGNTO * NLMSG_ALIGNTO;
    messages = messages.subspan(std::min(padded, messages.size()));
  }
  if (!messages.empty()) changes.incomplete = true;
}

InterfaceChanges parse_changes(std::span<const std::byte> messages, int interface_index) noexcept {
  InterfaceChanges changes;
  parse_changes(messages, interface_index, changes);
  return changes;
}

// The socket comes first: what changes after it opened is told, so nothing falls between it and the first look.
InterfaceWatch::InterfaceWatch(const DeviceInfo& device) : device_(device), socket_(open_socket()) {
  if (!socket_) {
    log_warn(device_.name + ": changes of " + device_.interface +
             " will not be told: a netlink socket cannot be had, " + errno_text(errno));
  }
  active_ = read_port(device_.interface).active;
  look_at_addresses();
}

void InterfaceWatch::look_at_addresses() {
  addresses_ = interface_addresses(device_.interface_index);
  bindable_.clear();
  if (std::ranges::any_of(addresses_,
                          [&](const InterfaceAddress& address) { return answers_to(address, device_.ipv4); })) {
    bindable_.push_back(wire::Gid::from_ipv4(device_.ipv4));
  }
  if (!device_.has_ipv6) return;
  for (const wire::Gid& gid : bindable_ipv6_addresses(device_.interface_index)) bindable_.push_back(gid);
}

bool InterfaceWatch::has_own_address() const noexcept {
  return std::ranges::find(bindable_, wire::Gid::from_ipv4(device_.ipv4)) != bindable_.end();
}

InterfaceChanges InterfaceWatch::receive() noexcept {
  InterfaceChanges changes;
  alignas(nlmsghdr) std::array<std::byte, kReceiveBytes> buffer;
  for (;;) {
    sockaddr_nl sender{};
    socklen_t sender_size = sizeof sender;
    const ssize_t got = ::recvfrom(socket_.get(), buffer.data(), buffer.size(), MSG_TRUNC,
                                   reinterpret_cast<sockaddr*>(&sender), &sender_size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == ENOBUFS) {  // told once; what comes after can be read
      changes.incomplete = true;
      continue;
    }
    if (got <= 0) return changes;
    if (sender.nl_pid != 0) continue;  // not the kernel
    const auto size = static_cast<std::size_t>(got);
    parse_changes(std::span{buffer}.first(std::min(size, buffer.size())), device_.interface_index, changes);
    if (size > buffer.size()) changes.incomplete = true;
  }
}

bool InterfaceWatch::addresses_differ() noexcept {
  const std::vector<InterfaceAddress> before = addresses_;
  const std::vector<wire::Gid> bindable_before = bindable_;
  const bool had_own_address = has_own_address();
  try {
    look_at_addresses();
  } catch (const std::exception& error) {
    log_warn(device_.name + ": " + error.what());
  }
  if (had_own_address && !has_own_address()) {
    log_warn(device_.name + ": " + device_.interface + " has no longer the address " + wire::ipv4_text(device_.ipv4));
  }
  return addresses_ != before || bindable_ != bindable_before;
}

std::vector<HcaEvent> InterfaceWatch::take_events() {
  InterfaceChanges changes = receive();
  if (changes.incomplete) changes.running = read_port(device_.interface).active;

  std::vector<HcaEvent> events;
  if (active_ && (changes.stopped || changes.running == false)) {
    active_ = false;
    events.push_back(HcaEvent::kPortError);
    log_warn(device_.name + ": " + device_.interface + " is down");
  }
  if (!active_ && changes.running == true) {
    active_ = true;
    events.push_back(HcaEvent::kPortActive);
    log_info(device_.name + ": " + device_.interface + " is up");
  }
  const bool look = changes.address_added || changes.address_removed || changes.ipv6_changed || changes.incomplete;
  if ((look && addresses_differ()) || changes.address_removed) events.push_back(HcaEvent::kGidChange);
  return events;
}

}  // namespace tensorwire::softhca
