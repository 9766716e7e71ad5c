#include "adversary.hpp"

#include <algorithm>

namespace tensorwire::transport::faults {

void Adversary::calm() noexcept {
  calm_ = true;
  down_until_ = {};
}

std::vector<std::byte> Adversary::take_buffer() {
  if (spare_.empty()) return {};
  std::vector<std::byte> buffer = std::move(spare_.back());
  spare_.pop_back();
  return buffer;
}

Packet Adversary::copy(const Packet& packet) {
  std::vector<std::byte> bytes = take_buffer();
  bytes.assign(packet.bytes.begin(), packet.bytes.end());
  Packet made;
  made.to = packet.to;
  made.ip_id = packet.ip_id;
  made.traffic_class = packet.traffic_class;
  made.flow = packet.flow;
  made.source = packet.source;
  made.label = packet.label;
  made.bytes = std::move(bytes);
  return made;
}

void Adversary::inject(Packet packet, Ps arrival) {
  packet.arrival = arrival;
  packet.order = order_++;
  heap_.push_back(std::move(packet));
  std::push_heap(heap_.begin(), heap_.end(), later);
}

Packet Adversary::take() {
  std::pop_heap(heap_.begin(), heap_.end(), later);
  Packet packet = std::move(heap_.back());
  heap_.pop_back();
  return packet;
}

void Adversary::send(std::size_t from, Packet packet, Ps departure) {
  Ps arrival = departure + scenario_.delay;
  if (calm_) return inject(std::move(packet), arrival);
  const bool down = departure < down_until_[from][packet.to];
  if (down || random_.chance(scenario_.lose)) {
    if (!down) hits_(Point::kFaultLose);
    return give_buffer(std::move(packet.bytes));
  }
  if (scenario_.jitter != 0) {
    arrival += static_cast<Ps>(random_.below(static_cast<std::uint32_t>(scenario_.jitter / kNanosecond))) * kNanosecond;
  }
  if (random_.chance(scenario_.reorder)) {
    hits_(Point::kFaultReorder);
    arrival += (2 + random_.below(20)) * kMicrosecond;
  }
  constexpr std::uint8_t kEcn = 3;  // 1 and 2: capable, 3: congestion experienced
  const std::uint8_t ecn = packet.traffic_class & kEcn;
  if ((ecn == 1 || ecn == 2) && random_.chance(scenario_.mark)) {
    hits_(Point::kFaultMark);
    packet.traffic_class |= kEcn;
  }
  if (random_.chance(scenario_.duplicate)) {
    hits_(Point::kFaultDuplicate);
    inject(copy(packet), arrival + random_.below(10) * kMicrosecond);
  }
  if (random_.chance(scenario_.replay)) {
    hits_(Point::kFaultReplay);
    inject(copy(packet), arrival + (Ps{1} << random_.below(9)) * 10 * kMicrosecond);
  }
  if (random_.chance(scenario_.corrupt)) corrupt(packet);
  inject(std::move(packet), arrival);
}

void Adversary::corrupt(Packet& packet) {
  packet.label.truth = Truth::kCorrupt;
  const auto size = static_cast<std::uint32_t>(packet.bytes.size());
  switch (random_.below(9)) {
    case 0:
      if (packet.flow.is_ipv4()) {
        hits_(Point::kFaultIpId);
        packet.ip_id = static_cast<std::uint16_t>(packet.ip_id ^ (1U << random_.below(16)));
        return;
      }
      hits_(Point::kFaultDestination);  // IPv6 has no identification
      packet.flow.destination.bytes[random_.below(16)] ^= static_cast<std::uint8_t>(1 + random_.below(255));
      return;
    case 2:
      hits_(Point::kFaultPort);
      packet.flow.source_port = static_cast<std::uint16_t>(packet.flow.source_port ^ (1U << random_.below(16)));
      return;
    case 1:
      hits_(Point::kFaultCut);
      packet.bytes.resize(size - std::min(size, 4 * (1 + random_.below(4))));
      return;
    default: {
      hits_(Point::kFaultCorrupt);
      // Byte 4 of the BTH belongs to the routers and is not covered. Headers are hit more often than their share.
      std::uint32_t at = random_.below(2) == 0 ? random_.below(28) % size : random_.below(size);
      if (at == 4) at = 5;
      packet.bytes[at] ^= static_cast<std::byte>(1 + random_.below(255));
    }
  }
}

}  // namespace tensorwire::transport::faults
