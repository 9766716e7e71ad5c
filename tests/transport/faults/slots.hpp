// Receive buffers that any message may meet, because nobody knows beforehand which: slots of one zone, handed out in
// turn and given back when their completion was seen. Some of them have a scatter list that must not be followed.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "scenario.hpp"
#include "sge_list.hpp"
#include "sim_host.hpp"

namespace tensorwire::transport::faults {

class Slots {
 public:
  Slots(const Scenario& scenario, Random& random) : scenario_(scenario), random_(random) {}

  /// Once, before the first post. `domain` is that of the queue that the buffers go to.
  void make(SimHost& host, PdId domain, std::uint32_t count, std::uint32_t slot_bytes) {
    slot_bytes_ = slot_bytes;
    zone_ = host.zone(std::uint64_t{count} * slot_bytes, kAccessLocalWrite, domain);
    for (std::uint32_t i = 0; i < count; ++i) free_.push_back(i);
  }
  /// The next slot, as a work request id.
  [[nodiscard]] std::uint64_t next() const {
    require(!free_.empty(), "the simulator has buffers enough");
    return free_.front();
  }
  void posted() { free_.erase(free_.begin()); }
  void give_back(std::uint64_t wr_id) { free_.push_back(static_cast<std::uint32_t>(wr_id)); }
  [[nodiscard]] std::uint64_t address_of(std::uint64_t wr_id) const noexcept {
    return zone_.address + wr_id * slot_bytes_;
  }
  [[nodiscard]] SgeList list(std::uint64_t wr_id) {
    const std::uint64_t address = address_of(wr_id);
    if (!random_.chance(scenario_.defect)) return cut(random_, address, slot_bytes_, zone_.key);
    switch (random_.below(5)) {
      case 0:
        return cut(random_, address, random_.below(slot_bytes_ + 1), zone_.key);
      case 1:
        return cut(random_, address, slot_bytes_, zone_.key ^ 0x5a5a'0001U);
      case 2:
        return cut(random_, address, slot_bytes_, zone_.no_right);
      case 3:
        return cut(random_, address, slot_bytes_, zone_.other_domain);
      default:
        return cut(random_, address, slot_bytes_, zone_.deregistered);
    }
  }

 private:
  const Scenario& scenario_;
  Random& random_;
  Zone zone_;
  std::uint32_t slot_bytes_ = 0;
  std::vector<std::uint32_t> free_;
};

}  // namespace tensorwire::transport::faults
