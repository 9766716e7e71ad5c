#include "comm/observe/device_counters.hpp"

#include <algorithm>

namespace tensorwire::comm {

DeviceCounters::DeviceCounters(const Link& link) : link_(&link) {
  for (std::size_t i = 0; i < kNames.size(); ++i) at_birth_[i] = link.device_counter(kNames[i]);
}

std::vector<DeviceCount> DeviceCounters::read() const {
  std::vector<DeviceCount> counts;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const auto now = link_->device_counter(kNames[i]);
    if (now && at_birth_[i]) counts.push_back({std::string{kNames[i]}, *now - *at_birth_[i]});
  }
  return counts;
}

std::uint64_t retransmissions(const std::vector<DeviceCount>& counts) noexcept {
  std::uint64_t events = 0;
  for (const DeviceCount& count : counts) {
    if (count.name == "retransmitted_packets") return count.count;
    const bool makes_it_send_again =
        count.name == "local_ack_timeout_err" || count.name == "packet_seq_err" || count.name == "implied_nak_seq_err";
    if (makes_it_send_again) events += count.count;
  }
  return events;
}

}  // namespace tensorwire::comm
