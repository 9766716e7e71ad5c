#include "softhca/neighbours.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/bytes.hpp"
#include "softhca/address_claim.hpp"

namespace tensorwire::softhca {

namespace {

enum class Kind : std::uint8_t { kStray = 1, kPlaceAnswer = 2 };

// kStray: kind 1 | ToS 1 | place of the first packet 2 | bytes of a packet 4 | source port 2 | destination port 2 |
// source GID 16 | destination GID 16 | packets.
constexpr std::size_t kStrayBytes = 44;
// kPlaceAnswer: kind 1 | slot 1 | index 1 | zero 1 | round 4 | GID 16.
constexpr std::size_t kPlaceAnswerBytes = 24;

constexpr std::size_t kLongestMessage = kStrayBytes + (1U << 16);

std::optional<Stray> decode_stray(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() <= kStrayBytes) return std::nullopt;
  Stray stray;
  stray.tos = std::to_integer<std::uint8_t>(bytes[1]);
  stray.first_packet = load_be16(&bytes[2]);
  stray.segment_bytes = load_be32(&bytes[4]);
  stray.flow = {.source = wire::load_gid(&bytes[12]),
                .destination = wire::load_gid(&bytes[28]),
                .source_port = load_be16(&bytes[8]),
                .destination_port = load_be16(&bytes[10])};
  stray.bytes = bytes.subspan(kStrayBytes);
  if (stray.segment_bytes == 0) return std::nullopt;
  return stray;
}

std::optional<PlaceAnswer> decode_place(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() != kPlaceAnswerBytes) return std::nullopt;
  return PlaceAnswer{.gid = wire::load_gid(&bytes[8]),
                     .round = load_be32(&bytes[4]),
                     .slot = std::to_integer<std::uint8_t>(bytes[1]),
                     .index = std::to_integer<std::uint8_t>(bytes[2])};
}

bool from_our_user(const msghdr& message) noexcept {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(const_cast<msghdr*>(&message), c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(c), sizeof sender);
    return sender.uid == ::geteuid();
  }
  return false;
}

}  // namespace

Neighbours::Neighbours(UniqueFd socket, std::uint32_t ipv4)
    : socket_(std::move(socket)), ipv4_(ipv4), buffer_(kLongestMessage) {
  // As many strays as its queue of datagrams allows, however long they are.
  const int wanted = 4 << 20;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted);
}

Neighbours::Sent Neighbours::send(std::uint8_t slot, std::span<const std::byte> head,
                                  std::span<const std::byte> body) noexcept {
  sockaddr_un to{};
  const socklen_t length = neighbour_address(ipv4_, slot, to);
  std::array<iovec, 2> parts{
      {{const_cast<std::byte*>(head.data()), head.size()}, {const_cast<std::byte*>(body.data()), body.size()}}};
  msghdr message{};
  message.msg_name = &to;
  message.msg_namelen = length;
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  if (::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Sent::kYes;
  return errno == ECONNREFUSED ? Sent::kNobody : Sent::kLost;
}

Neighbours::Sent Neighbours::send(std::uint8_t slot, const Stray& stray) noexcept {
  std::array<std::byte, kStrayBytes> head{};
  head[0] = static_cast<std::byte>(Kind::kStray);
  head[1] = std::byte{stray.tos};
  store_be16(&head[2], stray.first_packet);
  store_be32(&head[4], stray.segment_bytes);
  store_be16(&head[8], stray.flow.source_port);
  store_be16(&head[10], stray.flow.destination_port);
  wire::store_gid(&head[12], stray.flow.source);
  wire::store_gid(&head[28], stray.flow.destination);
  return send(slot, head, stray.bytes);
}

Neighbours::Sent Neighbours::send(std::uint8_t slot, const PlaceAnswer& answer) noexcept {
  std::array<std::byte, kPlaceAnswerBytes> head{};
  head[0] = static_cast<std::byte>(Kind::kPlaceAnswer);
  head[1] = std::byte{answer.slot};
  head[2] = std::byte{answer.index};
  store_be32(&head[4], answer.round);
  wire::store_gid(&head[8], answer.gid);
  return send(slot, head, {});
}

Neighbours::Message Neighbours::receive() noexcept {
  for (;;) {
    iovec part{buffer_.data(), buffer_.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(ucred))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t length = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0) return std::monostate{};
    if (length == 0 || (message.msg_flags & MSG_TRUNC) != 0 || !from_our_user(message)) continue;
    const auto bytes = std::span{buffer_}.first(static_cast<std::size_t>(length));
    if (bytes[0] == static_cast<std::byte>(Kind::kStray)) {
      if (const auto stray = decode_stray(bytes)) return *stray;
    } else if (bytes[0] == static_cast<std::byte>(Kind::kPlaceAnswer)) {
      if (const auto answer = decode_place(bytes)) return *answer;
    }
  }
}

/// Connecting a datagram socket leaves no trace at the other end.
std::size_t Neighbours::count_members() const noexcept {
  const UniqueFd fd{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  std::size_t members = 0;
  for (unsigned slot = kLowestSlot; slot <= kHighestSlot; ++slot) {
    sockaddr_un to{};
    const socklen_t length = neighbour_address(ipv4_, static_cast<std::uint8_t>(slot), to);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), length) == 0) ++members;
  }
  return members;
}

}  // namespace tensorwire::softhca
