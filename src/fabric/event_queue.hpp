// What happens next: a calendar queue (Brown, "Calendar queues", CACM 31(10), 1988). Time is cut into buckets; pushing
// costs a few instructions, and a bucket is sorted when its turn comes. Its width follows the density of events, so
// that a bucket holds one or two. What lies beyond the last bucket waits in a heap.
//
// Events are owned by who pushes them (packets and ports are events themselves) and stay where they are until popped.
// Events of the same time come in the order in which they were pushed: the same run on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.hpp"

namespace tensorwire::fabric {

enum class EventKind : std::uint8_t {
  kArrival,      ///< a packet, at the port `target`
  kDrained,      ///< a packet, out of the receive buffer of host `target`
  kPortFree,     ///< port `target` can send the next packet
  kPauseExpiry,  ///< of port and priority `target`: the pause that it obeys may be over
  kPauseRepeat,  ///< of port and priority `target`: the pause that it asks for must be said again
  kWatchdog,     ///< of port and priority `target`: it may be trusted again
  kHostTimer,    ///< a deadline of the engine of host `target`
  kCompletions,  ///< the software of host `target` sees completions
  kPosts,        ///< work requests have reached the NIC of host `target`
  kActor,        ///< somebody asked to be called
};

struct Event {
  Ps time = 0;
  std::uint64_t order = 0;
  Event* next = nullptr;
  std::uint32_t target = 0;
  EventKind kind = EventKind::kActor;
};

class EventQueue {
 public:
  EventQueue();

  /// `time` is not before now().
  void push(Event& event, Ps time);
  /// The earliest event, if it is not after `limit`; else null. Time goes on to it.
  [[nodiscard]] Event* pop(Ps limit);
  /// Of the last event popped.
  [[nodiscard]] Ps now() const noexcept { return now_; }
  [[nodiscard]] bool empty() const noexcept;
  [[nodiscard]] std::uint64_t popped() const noexcept { return popped_; }

 private:
  struct Entry {
    Ps time;
    std::uint64_t order;
    Event* event;
  };

  void place(Event& event);
  void place_in_current(Event& event);
  /// Makes the next bucket that is not empty the current one. False: there is none.
  bool advance();
  /// Buckets from the current one to the next that is not empty; 0 for none.
  [[nodiscard]] std::uint64_t distance_to_next() const noexcept;
  void fetch_ahead() const noexcept;
  void take_from_far();
  void sort_current();
  void adapt();

  [[nodiscard]] std::uint64_t bucket_of(Ps time) const noexcept { return static_cast<std::uint64_t>(time) >> shift_; }
  [[nodiscard]] std::uint64_t mask() const noexcept { return buckets_.size() - 1; }

  unsigned shift_;                       ///< a bucket is 2^shift_ ps wide
  std::uint64_t base_ = 0;               ///< number of the current bucket, counted from time 0
  std::vector<Event*> buckets_;          ///< unsorted lists; those of (base_, base_ + size)
  std::vector<std::uint64_t> occupied_;  ///< a bit for each bucket
  std::vector<Entry> current_;           ///< sorted; the part from cursor_ on is to come
  std::size_t cursor_ = 0;
  std::vector<Entry> far_;  ///< heap, earliest first
  std::uint64_t next_order_ = 0;
  std::uint64_t popped_ = 0;
  std::uint64_t adapt_at_;
  Ps adapted_ = 0;
  Ps now_ = 0;
};

}  // namespace tensorwire::fabric
