#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bytes.hpp"
#include "softhca/gpu/staged_memory.hpp"
#include "softhca/hello.hpp"
#include "softhca/socket_address.hpp"
#include "softhca/udp_link.hpp"
#include "transport/placement.hpp"
#include "wire/frame.hpp"
#include "wire/headers.hpp"

namespace tensorwire::softhca {

namespace {

/// Reads per receive(): at 64 KiB each, about 100 us of work.
constexpr int kReadsPerPass = 16;

/// Identifications that the kernel gives to the segments of one send.
constexpr std::uint16_t kOwnIds = 64;

/// Bytes between the end of the IP identification field and the end of an IPv4 and UDP header.
constexpr std::size_t kAfterIdBytes = wire::kIpv4Bytes - 6 + wire::kUdpBytes;

}  // namespace

std::size_t UdpLink::receive(Ps now, bool& more) noexcept {
  std::size_t packets = 0;
  more = false;
  Arrival arrival;
  for (Local& local : locals_) {
    int reads = 0;
    while (reads < kReadsPerPass && read(local, arrival)) {
      packets += is_ours(arrival) ? take(arrival, now) : sort_out(arrival, now);
      ++reads;
    }
    more = more || reads == kReadsPerPass;
  }
  return packets;
}

bool UdpLink::read(Local& local, Arrival& arrival) noexcept {
  SocketAddress from;
  iovec piece{receive_buffer_.data(), receive_buffer_.size()};
  alignas(cmsghdr) std::array<std::byte, 128> control;
  msghdr message{};
  message.msg_name = from.data();
  message.msg_namelen = from.size();
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t length = ::recvmsg(local.receive_socket.get(), &message, MSG_DONTWAIT);
  if (length < 0) return false;

  ++counters_.rx_buffers;
  arrival.bytes = std::span{receive_buffer_}.first(static_cast<std::size_t>(length));
  arrival.segment_bytes = arrival.bytes.size();
  arrival.first_packet = 0;
  arrival.tos = 0;
  arrival.flow_label = 0;
  arrival.flow = {from.gid(), local.gid, from.port(), wire::kRoceUdpPort};
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
      int segment = 0;
      std::memcpy(&segment, CMSG_DATA(c), sizeof segment);
      if (segment > 0) arrival.segment_bytes = static_cast<std::size_t>(segment);
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
      std::memcpy(&arrival.tos, CMSG_DATA(c), sizeof arrival.tos);
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
      int traffic_class = 0;
      std::memcpy(&traffic_class, CMSG_DATA(c), sizeof traffic_class);
      arrival.tos = static_cast<std::uint8_t>(traffic_class);
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == kIpv6Flowinfo) {
      std::uint32_t flow_info = 0;
      std::memcpy(&flow_info, CMSG_DATA(c), sizeof flow_info);
      arrival.flow_label = ntohl(flow_info) & wire::kFlowLabelMask;
    } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
      std::uint32_t dropped = 0;
      std::memcpy(&dropped, CMSG_DATA(c), sizeof dropped);
      counters_.rx_discards += dropped - std::exchange(local.kernel_drops, dropped);
    }
  }
  return true;
}

std::size_t UdpLink::take(const Arrival& arrival, Ps now) noexcept {
  if (capture_) {
    capture_->record({.flow = arrival.flow, .tos = arrival.tos, .flow_label = arrival.flow_label}, arrival.bytes,
                     arrival.segment_bytes);
  }
  transport::PacketSource source;
  source.address = arrival.flow.source;
  source.destination = arrival.flow.destination;
  source.traffic_class = arrival.tos;
  source.flow_label = arrival.flow_label;
  source.congestion_experienced = (arrival.tos & wire::kEcnMask) == wire::kEcnCongestionExperienced;

  std::size_t packets = 0;
  std::span<const std::byte> rest = arrival.bytes;
  while (!rest.empty()) {
    const std::span<const std::byte> packet = rest.first(std::min(rest.size(), arrival.segment_bytes));
    rest = rest.subspan(packet.size());
    take_packet(packet, arrival, source, static_cast<std::uint16_t>((arrival.first_packet + packets) % kOwnIds), now);
    ++packets;
  }
  return packets;
}

void UdpLink::take_packet(std::span<const std::byte> bytes, const Arrival& arrival,
                          const transport::PacketSource& source, std::uint16_t guessed_id, Ps now) noexcept {
  if (!bytes.empty() && bytes[0] == kHelloOpcode) {
    on_hello(bytes, arrival.flow, now);
    return;
  }
  wire::Parsed parsed;
  if (wire::parse(bytes, parsed) != wire::ParseStatus::kOk) {
    ++counters_.rx_malformed;
    return;
  }
  transport::Engine& engine = host_.engine();
  const auto payload_bytes = static_cast<std::uint32_t>(parsed.payload_bytes);
  const transport::RxVerdict verdict = engine.classify(parsed.headers, payload_bytes, source, now);
  if (verdict.action == transport::RxAction::kDrop) {
    // GRO may put packets of several processes behind one of ours.
    const std::uint8_t slot = slot_of(parsed.headers.dest_qpn);
    if (neighbours_ && verdict.drop == transport::DropReason::kUnknownQp && slot != host_.address().slot) {
      Arrival run = arrival;
      run.bytes = bytes;
      run.first_packet = guessed_id;
      pass_on(slot, run, now);
    }
    return;
  }

  const std::span<const std::byte> payload = bytes.subspan(parsed.header_bytes, parsed.payload_bytes);
  const std::span<const std::byte> after_headers =
      bytes.subspan(parsed.header_bytes, bytes.size() - parsed.header_bytes - wire::kIcrcBytes);
  const std::uint32_t header_crc = wire::icrc_headers(icrc_of_received_.begin(arrival.flow, bytes.size(), guessed_id),
                                                      bytes.first(parsed.header_bytes));
  const bool has_place = verdict.action == transport::RxAction::kPlace;

  // Middle and Last: their place is the engine's own knowledge, so the bytes go there in the same pass as the CRC. A
  // corrupt packet is then not committed, and its retransmission overwrites what it left.
  if (has_place && !verdict.verify_first) {
    std::uint32_t crc = header_crc;
    if (place(verdict, payload, &crc)) {
      crc = wire::crc_update(crc, after_headers.subspan(payload.size()));
      if (icrc_right(crc, bytes, arrival, guessed_id)) commit(verdict, parsed.headers, payload_bytes, now);
      return;
    }
  }
  if (!icrc_right(wire::crc_update(header_crc, after_headers), bytes, arrival, guessed_id)) return;
  if (has_place && !place(verdict, payload, nullptr)) {
    engine.reject(verdict, parsed.headers, now);
    return;
  }
  commit(verdict, parsed.headers, payload_bytes, now);
}

bool UdpLink::place(const transport::RxVerdict& verdict, std::span<const std::byte> payload,
                    std::uint32_t* crc) noexcept {
  if (staged_ == nullptr) return transport::place(verdict, payload, crc);
  staged_->placing(*verdict.qp);
  const bool placed = transport::place(verdict, payload, crc);
  staged_->placed();
  return placed;
}

void UdpLink::commit(const transport::RxVerdict& verdict, const wire::Headers& headers, std::uint32_t payload_bytes,
                     Ps now) noexcept {
  if (staged_ != nullptr && !staged_->landed(verdict, headers)) {
    host_.engine().reject(verdict, headers, now);
  } else {
    host_.engine().commit(verdict, headers, payload_bytes, now);
  }
}

/// `crc` stands before the ICRC of a packet that was computed with identification `guessed_id`. The sender's kernel
/// numbered it by its place in a send, which is its place in this buffer unless the network regrouped packets: then the
/// other ids are tried, at a table look-up each. Any id at all is accepted only from an address that never said hello,
/// because there the check is 16 bits weaker; and, unless it brings a datagram, only from one that we talk to. IPv6 has
/// no identification: one CRC is right, all others are wrong.
bool UdpLink::icrc_right(std::uint32_t crc, std::span<const std::byte> bytes, const Arrival& arrival,
                         std::uint16_t guessed_id) noexcept {
  const std::size_t udp_payload = bytes.size() - wire::kIcrcBytes;
  const std::uint32_t stored = load_le32(&bytes[udp_payload]);
  if (wire::icrc_finish(crc) == stored) return true;
  if (!arrival.flow.is_ipv4()) {
    ++counters_.rx_icrc_encapsulated;
    return false;
  }

  const std::size_t tail = kAfterIdBytes + udp_payload;
  const std::uint32_t crc_id0 = wire::icrc_shift_id(crc, guessed_id, tail);  // shifting twice by one id is no shift
  for (std::uint16_t id = 0; id < kOwnIds; ++id) {
    if (wire::icrc_finish(wire::icrc_shift_id(crc_id0, id, tail)) == stored) return true;
  }
  const wire::Gid& source = arrival.flow.source;
  const bool ours = peers_.find_at(source, [](const Peer& peer) { return peer.hello_seen; }) != nullptr;
  Peer* const connected = peers_.find_at(source, [](const Peer& peer) { return peer.path.has_value(); });
  const bool datagram = wire::traits(std::to_integer<std::uint8_t>(bytes[0])).deth;
  if ((connected != nullptr || datagram) && !ours &&
      wire::icrc_solve_id(stored ^ wire::icrc_finish(crc_id0), bytes.size()) >= 0) {
    if (connected != nullptr) connected->foreign = true;
    return true;
  }
  ++counters_.rx_icrc_encapsulated;
  return false;
}

Ps UdpLink::next_deadline() const noexcept {
  Ps deadline = std::min(retry_at_, next_hello_);
  for (const Local& local : locals_) {
    if (local.group) deadline = std::min(deadline, local.group->next_deadline());
  }
  if (faults_) deadline = std::min(deadline, faults_->next_deadline());
  if (late_dma_) deadline = std::min(deadline, late_dma_->next_deadline());
  return deadline;
}

void UdpLink::on_timer(Ps now) noexcept {
  if (retry_at_ <= now || late_dma_) flush(now);
  if (faults_ && faults_->next_deadline() <= now) faults_->fire(now, *this);
  if (next_hello_ <= now) repeat_hellos(now);
  serve_groups(now);
}

void UdpLink::visit_counters(const CounterSink& sink) const {
  sink("rx_icrc_encapsulated", counters_.rx_icrc_encapsulated);
  sink("rx_discards", counters_.rx_discards);
  sink("rx_malformed", counters_.rx_malformed);
  sink("rx_buffers", counters_.rx_buffers);
  sink("tx_sends", counters_.tx_sends);
  sink("tx_errors", counters_.tx_errors);
  sink("tx_stalls", counters_.tx_stalls);
  if (!neighbours_) return;
  sink("strays_passed_on", counters_.strays_passed_on);
  sink("strays_taken", counters_.strays_taken);
  sink("strays_lost", counters_.strays_lost);
  sink("strays_of_nobody", counters_.strays_of_nobody);
}

}  // namespace tensorwire::softhca
