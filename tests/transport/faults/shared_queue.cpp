#include "shared_queue.hpp"

#include <cerrno>

namespace tensorwire::transport::faults {
namespace {

/// More slots than the queue takes: each queue pair may hold one, and completions are not free before they are polled.
constexpr std::uint32_t kSpareSlots = 10;

SharedReceiveQueue& create(SimHost& host, PdId pd, std::uint32_t capacity) {
  return host.engine.create_srq({.pd = pd, .max_wr = capacity, .max_sge = 4, .user = nullptr});
}

}  // namespace

SharedQueue::SharedQueue(const Scenario& scenario, Random& random, Hits& hits, SimHost& host)
    : engine(create(host, random.below(2) == 0 ? host.pd : host.other_pd, 1 + random.below(16))),
      ref(engine.init().pd, hits),
      slots(scenario, random),
      scenario_(scenario),
      random_(random),
      host_(host),
      capacity_(engine.init().max_wr),
      waits_for_limit_(random.below(3) == 0) {}

void SharedQueue::make_slots(std::uint32_t slot_bytes) {
  slots.make(host_, ref.pd, capacity_ + kSpareSlots, slot_bytes);
}

bool SharedQueue::post() {
  const std::uint64_t slot = slots.next();
  const SgeList sges = slots.list(slot);
  const int result = engine.post({slot, sges.span()});
  const bool full = ref.size() == capacity_;
  require(result == (full ? ENOMEM : 0), "a buffer is taken unless the shared queue is full");
  if (full) return false;
  slots.posted();
  ref.post({slot, sges});
  return true;
}

void SharedQueue::arm() {
  require(engine.arm(capacity_ + 1) == EINVAL, "no limit beyond what the queue holds");
  const std::uint32_t limit = 1 + random_.below(capacity_);
  require(engine.arm(limit) == 0, "a limit can be armed");
  ref.arm(limit);
  settle();
}

bool SharedQueue::refill() {
  if (waits_for_limit_ && ref.armed() && random_.below(16) != 0) return false;
  bool posted = false;
  std::uint32_t n = scenario_.has(Fault::kStarve) ? random_.below(3) : capacity_ + 1;
  for (; n != 0 && post(); --n) posted = true;
  if (!ref.armed() && random_.below(2) == 0) arm();
  return posted;
}

void SharedQueue::settle() {
  require(host_.events.limit_reached == ref.events, "the limit of a shared queue is told once, when it is reached");
  require(engine.limit() == 0 || ref.armed(), "a limit that was told is disarmed");
  host_.events.limit_reached = ref.events = 0;
}

}  // namespace tensorwire::transport::faults
