// A shared receive queue of a simulated host: the engine's, the reference beside it, and the application that owns it.
#pragma once

#include <cstdint>

#include "base/random.hpp"
#include "reference_srq.hpp"
#include "scenario.hpp"
#include "sim_host.hpp"
#include "slots.hpp"

namespace tensorwire::transport::faults {

class SharedQueue {
 public:
  SharedQueue(const Scenario& scenario, Random& random, Hits& hits, SimHost& host);

  /// Once, before the first post.
  void make_slots(std::uint32_t slot_bytes);
  /// The application posts and arms, unless it waits for the limit; true when it posted.
  bool refill();
  /// Events of the queue since the last call are those of the reference.
  void settle();

  SharedReceiveQueue& engine;
  ReferenceSrq ref;
  Slots slots;

 private:
  [[nodiscard]] bool post();
  void arm();

  const Scenario& scenario_;
  Random& random_;
  SimHost& host_;
  std::uint32_t capacity_;
  bool waits_for_limit_;
};

}  // namespace tensorwire::transport::faults
