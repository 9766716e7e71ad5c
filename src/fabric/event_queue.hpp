// What happens next: a calendar queue (Brown, "Calendar queues", CACM 31(10), 1988). Time is cut into buckets; pushing
// costs a few instructions, and a bucket is sorted when its turn comes. Its width follows the density of events, so
// that a bucket holds one or two. What lies beyond the last bucket waits in a heap.
//
// Events are values, a packet's included: nothing is followed to where it lies in order to sort or move it. The next
// few are always in order already (ahead()), so that what they will need can be fetched from memory in time.
//
// Events of the same time come in the order in which they were pushed: the same run on every machine. Nobody counts
// that order: events of the same time are always in the same bucket, behind each other, and sorting is stable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "base/time.hpp"
#include "fabric/packet.hpp"

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

class Event {
 public:
  Event() = default;
  /// `target` has 28 bits.
  Event(Ps at, EventKind kind, std::uint32_t target, const Packet& what) noexcept
      : time(at), kind_and_target_(target << kKindBits | static_cast<std::uint32_t>(kind)), packet(what) {}

  [[nodiscard]] EventKind kind() const noexcept { return static_cast<EventKind>(kind_and_target_ & kKindMask); }
  [[nodiscard]] std::uint32_t target() const noexcept { return kind_and_target_ >> kKindBits; }

  Ps time = 0;

 private:
  static constexpr unsigned kKindBits = 4;
  static constexpr std::uint32_t kKindMask = (1U << kKindBits) - 1;
  std::uint32_t kind_and_target_ = 0;

 public:
  Packet packet;
};
static_assert(sizeof(Event) == 32);

class EventQueue {
 public:
  /// @param ahead how many events should be in order before their time, if they are near
  explicit EventQueue(std::size_t ahead = 1);

  /// `time` is not before now().
  void push(Ps time, EventKind kind, std::uint32_t target, const Packet& packet = {}) {
    const std::uint64_t bucket = bucket_of(time);
    if (bucket - base_ - 1 >= buckets_.size() - 1) return place_outside({time, kind, target, packet});
    ::new (static_cast<void*>(&append(bucket & mask()))) Event(time, kind, target, packet);
  }
  /// The earliest event, if it is not after `limit`; else null. Time goes on to it. It is there until the next call.
  [[nodiscard]] Event* pop(Ps limit) {
    if (window_.size() - cursor_ < ahead_ && !fill()) return nullptr;
    Event& event = window_[cursor_];
    if (event.time > limit) return nullptr;
    now_ = event.time;
    ++cursor_;
    if (++popped_ == adapt_at_) adapt();
    return &window_[cursor_ - 1];
  }
  /// The event that will be popped after `events` others, as far as is known; null where nothing is.
  [[nodiscard]] Event* ahead(std::size_t events) noexcept {
    return cursor_ + events < window_.size() ? &window_[cursor_ + events] : nullptr;
  }
  /// Of the last event popped.
  [[nodiscard]] Ps now() const noexcept { return now_; }
  [[nodiscard]] bool empty() const noexcept;
  [[nodiscard]] std::uint64_t popped() const noexcept { return popped_; }

 private:
  struct alignas(64) Chunk {
    static constexpr std::uint32_t kEvents = 4;
    std::array<Event, kEvents> events;
  };
  struct Bucket {
    std::uint32_t first = 0, last = 0;  ///< chunks; all but the last are full
    std::uint32_t count = 0;            ///< events
  };
  struct Far {
    Event event;
    std::uint64_t order;
  };
  [[nodiscard]] static bool later(const Far& a, const Far& b) noexcept {
    return a.event.time != b.event.time ? a.event.time > b.event.time : a.order > b.order;
  }

  /// Room at the end of the bucket.
  Event& append(std::uint64_t at) {
    Bucket& bucket = buckets_[at];
    const std::uint32_t in_chunk = bucket.count++ % Chunk::kEvents;
    if (in_chunk == 0) add_chunk(bucket, at);
    return chunks_[bucket.last].events[in_chunk];
  }
  void add_chunk(Bucket& bucket, std::uint64_t at);
  void place(const Event& event);
  /// An event that no bucket is for: it goes into the window, or is far away.
  void place_outside(const Event& event);
  void insert(const Event& event);
  /// Moves the next events into the window while it has few of those that are near. False: there are none at all.
  bool fill();
  void move_to_window(std::uint64_t distance);
  /// Moves what is in the bucket to the end of `events`.
  void empty_into(Bucket& bucket, std::vector<Event>& events);
  void fetch_next_bucket() const noexcept;
  void forget_popped() noexcept;
  /// Buckets from the last one of the window to the next that is not empty; 0 for none.
  [[nodiscard]] std::uint64_t distance_to_next() const noexcept;
  /// The same, if there is one among the next few.
  [[nodiscard]] std::uint64_t distance_to_near() const noexcept;
  void take_from_far();
  void sort_window(std::size_t from);
  void adapt();

  [[nodiscard]] std::uint64_t bucket_of(Ps time) const noexcept { return static_cast<std::uint64_t>(time) >> shift_; }
  [[nodiscard]] std::uint64_t mask() const noexcept { return buckets_.size() - 1; }

  std::size_t ahead_;
  unsigned shift_;                       ///< a bucket is 2^shift_ ps wide
  std::uint64_t base_ = 0;               ///< number of the last bucket in the window, counted from time 0
  std::vector<Bucket> buckets_;          ///< those of (base_, base_ + size)
  std::vector<std::uint64_t> occupied_;  ///< a bit for each bucket
  Numbered<Chunk> chunks_;
  std::vector<std::uint32_t> next_chunk_;  ///< by chunk
  std::vector<Event> window_;              ///< sorted; the part from cursor_ on is to come
  std::size_t cursor_ = 0;
  std::vector<Far> far_;  ///< heap, earliest first
  std::uint64_t next_order_ = 0;
  std::uint64_t popped_ = 0;
  std::uint64_t adapt_at_;
  Ps adapted_ = 0;
  Ps now_ = 0;
};

}  // namespace tensorwire::fabric
