#include <algorithm>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "softhca/hello.hpp"
#include "softhca/udp_link.hpp"
#include "wire/headers.hpp"

namespace tensorwire::softhca {

namespace {

constexpr std::uint8_t kHelloRepeats = 3;
constexpr Ps kHelloInterval = 20 * kMillisecond;

}  // namespace

transport::PathId UdpLink::path_to(const wire::Gid& local, const ProcessAddress& at) {
  Peer* const peer = peers_.find_or_add(at, local);
  if (peer == nullptr) throw Error{"connect to " + address_text(at.gid), "too many peers (4096)"};
  if (!peer->path) {
    peer->local = local;
    peer->path = host_.engine().create_path({.window_bytes = window_for(peer->buffer_bytes, peer->sharers)});
    host_.bind_path(*peer->path, *this);
    ++paths_made_;
    peer->hellos_left = peer->hello_seen ? 1 : kHelloRepeats;
    const Ps now = monotonic_now();
    send_hello(*peer, !peer->hello_seen, now);
    if (paths_made_ >= kExpectedSharers) announce_to_all(now);  // each one's share has become smaller
  }
  return *peer->path;
}

void UdpLink::send_hello(Peer& peer, bool answer_wanted, Ps now) noexcept {
  const auto socket = std::ranges::find(send_sockets_, peer.local, &SendSocket::local);
  if (socket == send_sockets_.end()) return;  // nothing of ours can leave from there yet
  const Hello hello{.answer_wanted = answer_wanted,
                    .sender_slot = host_.address().slot,
                    .receiver_slot = peer.at.slot,
                    .sharers = paths_made_,
                    .receive_buffer_bytes = receive_buffer_bytes_};
  const wire::Flow flow{peer.local, peer.at.gid, socket->port, wire::kRoceUdpPort};
  const auto bytes = encode_hello(hello, flow);
  send_bytes({.source = flow.source, .destination = flow.destination, .source_port = flow.source_port}, 0, bytes,
             bytes.size());
  if (peer.hellos_left > 0) --peer.hellos_left;
  peer.next_hello = answer_wanted && peer.hellos_left > 0 ? now + kHelloInterval : kNever;
  find_next_hello();
}

void UdpLink::on_hello(std::span<const std::byte> bytes, const wire::Flow& flow, Ps now) noexcept {
  const std::optional<Hello> hello = parse_hello(bytes, flow);
  const bool for_us = hello && hello->receiver_slot == host_.address().slot;
  Peer* const peer =
      for_us ? peers_.find_or_add({.gid = flow.source, .slot = hello->sender_slot}, flow.destination) : nullptr;
  if (peer == nullptr) {
    ++counters_.rx_malformed;
    return;
  }
  peer->hello_seen = true;
  peer->foreign = false;
  peer->buffer_bytes = hello->receive_buffer_bytes;
  peer->sharers = hello->sharers;
  peer->next_hello = kNever;
  find_next_hello();
  if (peer->path) host_.engine().set_path_window(*peer->path, window_for(peer->buffer_bytes, peer->sharers));
  if (hello->answer_wanted) send_hello(*peer, false, now);
}

void UdpLink::announce_to_all(Ps now) noexcept {
  for (const auto& peer : peers_.all()) {
    if (peer->path && peer->hello_seen) send_hello(*peer, false, now);
  }
}

void UdpLink::repeat_hellos(Ps now) noexcept {
  for (const auto& peer : peers_.all()) {
    if (peer->next_hello <= now) send_hello(*peer, true, now);
  }
}

void UdpLink::find_next_hello() noexcept {
  next_hello_ = kNever;
  for (const auto& peer : peers_.all()) next_hello_ = std::min(next_hello_, peer->next_hello);
}

}  // namespace tensorwire::softhca
