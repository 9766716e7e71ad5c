#include "cli/bench/tcp_link.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace tensorwire::cli {

namespace {

void store_header(std::span<std::byte> out, std::uint64_t offset, std::uint32_t bytes,
                  std::uint32_t immediate) noexcept {
  std::memcpy(out.data(), &offset, 8);  // both ends are this program on little-endian machines
  std::memcpy(out.data() + 8, &bytes, 4);
  std::memcpy(out.data() + 12, &immediate, 4);
}

}  // namespace

TcpLink::TcpLink(bootstrap::Group& group, const comm::LinkSetup& setup, std::uint32_t address)
    : mesh_(group, address), rank_(setup.rank), scratch_(setup.scratch), peers_(setup.ranks) {
  for (std::uint32_t peer = 0; peer < setup.ranks; ++peer) {
    peers_[peer].fd = mesh_.socket_of(static_cast<int>(peer));
    peers_[peer].queue.resize(setup.send_depth);
  }
  sent_tokens_.reserve(std::size_t{setup.send_depth} * setup.ranks);
}

bool TcpLink::fail(std::uint32_t peer, const std::string& why) noexcept {
  if (!failure_) failure_ = comm::LinkFailure{peer, "TCP connection to rank " + std::to_string(peer) + ": " + why};
  return false;
}

bool TcpLink::post_write(const comm::WriteRequest& request) noexcept {
  if (failure_) return false;
  Peer& peer = peers_[request.peer];
  if (peer.queued == peer.queue.size()) return fail(request.peer, "more writes posted than the link was made for");
  if (request.pieces.size() > kMaxPieces) return fail(request.peer, "a write has too many pieces");
  Outgoing& out = peer.queue[(peer.head + peer.queued) % peer.queue.size()];
  ++peer.queued;
  std::uint64_t bytes = 0;
  out.pieces = {};
  for (std::size_t i = 0; i < request.pieces.size(); ++i) {
    out.pieces[i] = request.pieces[i];
    bytes += request.pieces[i].bytes;
  }
  store_header(out.header, request.remote_offset, static_cast<std::uint32_t>(bytes), request.immediate);
  out.done = 0;
  out.total = kHeaderBytes + bytes;
  out.token = request.token;
  peer.tally.messages_sent.add(1);
  peer.tally.bytes_sent.add(bytes);
  return flush(request.peer);
}

/// Hands the rest of the oldest message to the kernel, as far as it takes it. False: failed.
bool TcpLink::send_some(std::uint32_t peer) noexcept {
  Outgoing& out = peers_[peer].queue[peers_[peer].head];
  std::array<iovec, 1 + kMaxPieces> vector{};
  std::size_t used = 0;
  std::uint64_t skip = out.done;
  const auto add = [&](const std::byte* address, std::size_t bytes) {
    const std::uint64_t skipped = std::min<std::uint64_t>(skip, bytes);
    skip -= skipped;
    if (bytes > skipped) vector[used++] = {const_cast<std::byte*>(address) + skipped, bytes - skipped};
  };
  add(out.header.data(), kHeaderBytes);
  for (const comm::Piece& piece : out.pieces) add(piece.address, piece.bytes);
  msghdr message{};
  message.msg_iov = vector.data();
  message.msg_iovlen = used;
  const ssize_t sent = sendmsg(peers_[peer].fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return errno == EAGAIN || errno == EINTR || fail(peer, errno_text(errno));
  out.done += static_cast<std::uint64_t>(sent);
  return true;
}

bool TcpLink::flush(std::uint32_t peer_rank) noexcept {
  Peer& peer = peers_[peer_rank];
  while (peer.queued > 0) {
    Outgoing& out = peer.queue[peer.head];
    const std::uint64_t before = out.done;
    if (!send_some(peer_rank)) return false;
    if (out.done < out.total) {
      if (out.done == before) return true;  // the socket is full
      continue;
    }
    if (out.token != collective::kNoToken) sent_tokens_.push_back(out.token);
    peer.head = (peer.head + 1) % peer.queue.size();
    --peer.queued;
  }
  return true;
}

/// A complete header: where its bytes go. A peer's offset and length are checked like any other input.
bool TcpLink::take_header(std::uint32_t peer) noexcept {
  Incoming& in = peers_[peer].incoming;
  std::uint32_t bytes = 0;
  std::memcpy(&in.offset, in.header.data(), 8);
  std::memcpy(&bytes, in.header.data() + 8, 4);
  std::memcpy(&in.immediate, in.header.data() + 12, 4);
  in.left = bytes;
  if (in.offset > scratch_.size() || in.left > scratch_.size() - in.offset)
    return fail(peer, "a write outside the scratch memory");
  return true;
}

void TcpLink::finish_message(std::uint32_t peer, EventBuffer& out) noexcept {
  Incoming& in = peers_[peer].incoming;
  in.header_done = 0;
  peers_[peer].tally.messages_received.add(1);
  out.events[out.count++] = {comm::LinkEventKind::kArrival, peer, in.immediate, 0};
}

/// One read: the rest of a header, or the rest of a message and the header after it. False: failed.
bool TcpLink::receive_some(std::uint32_t peer_rank, EventBuffer& out, bool& moved) noexcept {
  Peer& peer = peers_[peer_rank];
  Incoming& in = peer.incoming;
  const bool in_message = in.header_done == kHeaderBytes;
  std::array<iovec, 2> vector{};
  std::size_t used = 0;
  if (in_message) vector[used++] = {scratch_.data() + in.offset, in.left};
  Header next;
  vector[used++] = in_message ? iovec{next.data(), kHeaderBytes}
                              : iovec{in.header.data() + in.header_done, kHeaderBytes - in.header_done};
  msghdr message{};
  message.msg_iov = vector.data();
  message.msg_iovlen = used;
  const ssize_t got = recvmsg(peer.fd, &message, MSG_DONTWAIT);
  if (got == 0) return fail(peer_rank, "closed by the peer");
  if (got < 0) return errno == EAGAIN || errno == EINTR || fail(peer_rank, errno_text(errno));
  moved = true;
  auto bytes = static_cast<std::uint64_t>(got);
  if (in_message) {
    const std::uint64_t payload = std::min(bytes, in.left);
    in.offset += payload;
    in.left -= payload;
    bytes -= payload;
    peer.tally.bytes_received.add(payload);
    if (in.left > 0) return true;
    finish_message(peer_rank, out);
    in.header = next;
  }
  in.header_done += bytes;
  if (in.header_done < kHeaderBytes) return true;
  if (!take_header(peer_rank)) return false;
  if (in.left == 0) finish_message(peer_rank, out);
  return true;
}

int TcpLink::poll(std::span<comm::LinkEvent> events) noexcept {
  EventBuffer out{events, 0};
  for (std::uint32_t step = 1; step < peers_.size(); ++step) {
    const auto peer = static_cast<std::uint32_t>((rank_ + step) % peers_.size());
    if (failure_ || !flush(peer)) return -1;
    // Reads until the socket is empty or a message is complete: the caller wants that at once. A read can end one
    // message and, when the next is empty, a second one.
    const std::size_t before = out.count;
    for (bool moved = true; moved && out.count == before && out.count + 2 <= events.size();) {
      moved = false;
      if (!receive_some(peer, out, moved)) return -1;
    }
  }
  while (!sent_tokens_.empty() && !out.full()) {
    out.events[out.count++] = {comm::LinkEventKind::kSent, 0, 0, sent_tokens_.back()};
    sent_tokens_.pop_back();
  }
  return static_cast<int>(out.count);
}

void TcpLink::wait(Ps bound) noexcept {
  std::vector<pollfd> fds;
  for (const Peer& peer : peers_) {
    if (peer.fd >= 0) fds.push_back({peer.fd, static_cast<short>(peer.queued > 0 ? POLLIN | POLLOUT : POLLIN), 0});
  }
  ::poll(fds.data(), fds.size(), static_cast<int>(bound / kMillisecond) + 1);
}

const comm::LinkFailure* TcpLink::failure() const noexcept { return failure_ ? &*failure_ : nullptr; }

std::string TcpLink::describe(std::uint32_t /*peer*/) const { return "kernel TCP, TCP_NODELAY, one connection a pair"; }

}  // namespace tensorwire::cli
