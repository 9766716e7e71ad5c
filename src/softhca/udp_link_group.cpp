#include <sys/socket.h>

#include <algorithm>
#include <tuple>

#include "base/error.hpp"
#include "base/log.hpp"
#include "softhca/socket_address.hpp"
#include "softhca/udp_link.hpp"
#include "wire/headers.hpp"

namespace tensorwire::softhca {

namespace {

/// Messages of neighbours taken in one go: the links wait meanwhile.
constexpr int kMessagesPerCall = 64;

/// The group may have a socket more than there are names: of a process that is just dying, or binding.
constexpr std::size_t kMoreProbes = 2;

std::uint8_t slot_in(std::span<const std::byte> packet) noexcept {
  return packet.size() > kBthSlotOffset ? std::to_integer<std::uint8_t>(packet[kBthSlotOffset]) : 0;
}

}  // namespace

UdpLink::Local* UdpLink::find_local(const wire::Gid& gid) noexcept {
  const auto found = std::ranges::find(locals_, gid, &Local::gid);
  return found == locals_.end() ? nullptr : &*found;
}

// ---- the group's program

void UdpLink::ask_group(Local& local, Ps now) noexcept {
  const std::size_t members = neighbours_->count_members();
  const std::uint32_t round = local.group->ask(members, now);
  const SocketAddress to{local.gid, wire::kRoceUdpPort, host_.address().interface_index};
  const std::size_t probes = std::min<std::size_t>(members + kMoreProbes, kSlots);
  for (std::size_t index = 0; index < probes; ++index) {
    const auto bytes =
        encode_probe({.index = static_cast<std::uint8_t>(index), .asker = host_.address().slot, .round = round});
    // What is lost here is found out by the next stray.
    std::ignore = ::sendto(local.receive_socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT, to.data(), to.size());
  }
}

void UdpLink::write_program(Local& local, Ps now) noexcept {
  const Places& places = local.group->write(now);
  const int error = attach(local.receive_socket.get(), dispatch_program(places));
  const auto known = std::ranges::count_if(places, [](const auto& place) { return place.has_value(); });
  if (error != 0) {
    log_warn("packets to " + address_text(local.gid) + " are not sorted by process: " + errno_text(error));
  } else {
    log_debug("packets to " + address_text(local.gid) + " are sorted among " + std::to_string(known) + " processes");
  }
}

void UdpLink::serve_groups(Ps now) noexcept {
  for (Local& local : locals_) {
    if (!local.group) continue;
    const ReceiveGroup::Due due = local.group->due(now);
    if (due == ReceiveGroup::Due::kWrite) write_program(local, now);
    if (due == ReceiveGroup::Due::kAsk) ask_group(local, now);
  }
}

/// Only what comes from our own address asks; its answer goes by the neighbours' sockets, where the kernel says who is
/// who. So a forged probe has no effect.
void UdpLink::on_probe(const Arrival& arrival, Ps now) noexcept {
  const std::optional<Probe> probe = parse_probe(arrival.bytes);
  if (!probe || arrival.flow.source != arrival.flow.destination) {
    ++counters_.rx_malformed;
    return;
  }
  const PlaceAnswer answer{
      .gid = arrival.flow.destination, .round = probe->round, .slot = host_.address().slot, .index = probe->index};
  if (probe->asker == host_.address().slot) {
    on_place(answer, now);
  } else {
    std::ignore = neighbours_->send(probe->asker, answer);
  }
}

void UdpLink::on_place(const PlaceAnswer& answer, Ps now) noexcept {
  Local* const local = find_local(answer.gid);
  if (local == nullptr || !local->group) return;
  if (local->group->on_answer(answer.round, answer.slot, answer.index, now)) write_program(*local, now);
}

// ---- strays

/// True for all there is at an address that nobody shares. A buffer goes to the process of its first packet.
bool UdpLink::is_ours(const Arrival& arrival) const noexcept {
  if (!neighbours_) return true;
  // The index in a probe stands where a packet has its slot.
  return slot_in(arrival.bytes) == host_.address().slot && arrival.bytes[0] != kProbeOpcode;
}

/// A buffer that does not begin with a packet of ours: a probe, or runs of packets of one process each (the kernel, or
/// a network card, may put packets of several into one buffer).
std::size_t UdpLink::sort_out(const Arrival& arrival, Ps now) noexcept {
  if (!arrival.bytes.empty() && arrival.bytes[0] == kProbeOpcode) {
    on_probe(arrival, now);
    return 1;
  }
  std::size_t packets = 0;
  for (std::size_t at = 0; at < arrival.bytes.size();) {
    const std::uint8_t slot = slot_in(arrival.bytes.subspan(at));
    std::size_t end = at;
    Arrival run = arrival;
    run.first_packet = arrival.first_packet + packets;
    while (end < arrival.bytes.size() && slot_in(arrival.bytes.subspan(end)) == slot) {
      end = std::min(end + arrival.segment_bytes, arrival.bytes.size());
      ++packets;
    }
    run.bytes = arrival.bytes.subspan(at, end - at);
    at = end;
    if (slot == host_.address().slot) {
      take(run, now);
    } else {
      pass_on(slot, run, now);
    }
  }
  return packets;
}

void UdpLink::pass_on(std::uint8_t slot, const Arrival& run, Ps now) noexcept {
  const Stray stray{.flow = run.flow,
                    .tos = run.tos,
                    .first_packet = static_cast<std::uint16_t>(run.first_packet),
                    .segment_bytes = static_cast<std::uint32_t>(run.segment_bytes),
                    .bytes = run.bytes};
  const Neighbours::Sent sent = neighbours_->send(slot, stray);
  if (sent == Neighbours::Sent::kNobody) {
    ++counters_.strays_of_nobody;
    return;
  }
  ++(sent == Neighbours::Sent::kYes ? counters_.strays_passed_on : counters_.strays_lost);
  if (Local* const local = find_local(run.flow.destination)) local->group->on_stray(now);
}

void UdpLink::hear_neighbours(Ps now) noexcept {
  for (int i = 0; i < kMessagesPerCall; ++i) {
    const Neighbours::Message message = neighbours_->receive();
    if (const auto* answer = std::get_if<PlaceAnswer>(&message)) {
      on_place(*answer, now);
    } else if (const auto* stray = std::get_if<Stray>(&message)) {
      const Arrival arrival{.bytes = stray->bytes,
                            .segment_bytes = stray->segment_bytes,
                            .first_packet = stray->first_packet,
                            .flow = stray->flow,
                            .tos = stray->tos};
      // What is not ours either is dropped: two members that are both wrong must not play ball.
      if (!is_ours(arrival) || find_local(arrival.flow.destination) == nullptr) continue;
      ++counters_.strays_taken;
      take(arrival, now);
    } else {
      return;
    }
  }
}

}  // namespace tensorwire::softhca
