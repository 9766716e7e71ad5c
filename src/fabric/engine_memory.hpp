// Where the engine of a host keeps what a packet makes it read, so that the fabric can fetch that before the packet's
// turn comes. It is the one place of the fabric that looks inside of queue pairs, and it only asks where things lie.
// Owned by its Fabric; queue pairs live as long as their host.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/queue_pair.hpp"

namespace tensorwire::fabric {

class EngineMemory {
 public:
  /// @param key the region that its packets name
  void learn(const transport::QueuePair& qp, std::uint32_t key);

  /// What every packet of the host reads.
  void fetch_shared() const noexcept;
  /// Where fetch() finds the queue pair.
  void fetch_place(std::uint32_t qpn) const noexcept {
    if (qpn <= places_.size()) __builtin_prefetch(&places_[qpn - 1]);
  }
  /// What a packet of this queue pair reads, too.
  void fetch(std::uint32_t qpn) const noexcept;

 private:
  struct Place {
    const void* qp;
    const void* congestion;
  };

  const void* core_ = nullptr;
  const void* path_ = nullptr;
  const void* region_ = nullptr;
  std::vector<Place> places_;  ///< by QPN, from 1
};

}  // namespace tensorwire::fabric
