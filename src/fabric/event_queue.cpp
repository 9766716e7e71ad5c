#include "fabric/event_queue.hpp"

#include <algorithm>
#include <bit>

namespace tensorwire::fabric {

namespace {

constexpr unsigned kFirstShift = 13;  // 8 ns, until the density is known
constexpr unsigned kNarrowest = 5;
constexpr unsigned kWidest = 24;
/// The calendar should reach this far: most events are a packet's time on a link away.
constexpr std::uint64_t kReach = 4 * kMicrosecond;
constexpr std::uint64_t kFewestBuckets = 1U << 10;
constexpr std::uint64_t kMostBuckets = 1U << 16;
constexpr std::uint64_t kAdaptEvery = 1U << 16;
constexpr std::uint64_t kFirstAdaption = 1U << 12;

constexpr std::uint64_t buckets_for(unsigned shift) noexcept {
  return std::clamp(std::bit_ceil(kReach >> shift), kFewestBuckets, kMostBuckets);
}

template <class Entry>
bool earlier(const Entry& a, const Entry& b) noexcept {
  return a.time != b.time ? a.time < b.time : a.order < b.order;
}
template <class Entry>
bool later(const Entry& a, const Entry& b) noexcept {
  return earlier(b, a);
}

}  // namespace

EventQueue::EventQueue()
    : shift_(kFirstShift),
      buckets_(buckets_for(kFirstShift)),
      occupied_(buckets_.size() / 64),
      adapt_at_(kFirstAdaption) {}

void EventQueue::push(Event& event, Ps time) {
  event.time = time;
  event.order = next_order_++;
  place(event);
}

void EventQueue::place(Event& event) {
  const std::uint64_t bucket = bucket_of(event.time);
  if (bucket <= base_) return place_in_current(event);
  if (bucket - base_ >= buckets_.size()) {
    far_.push_back({event.time, event.order, &event});
    std::push_heap(far_.begin(), far_.end(), later<Entry>);
    return;
  }
  const std::uint64_t at = bucket & mask();
  event.next = buckets_[at];
  buckets_[at] = &event;
  occupied_[at / 64] |= std::uint64_t{1} << at % 64;
}

void EventQueue::place_in_current(Event& event) {
  const Entry entry{event.time, event.order, &event};
  auto at = current_.end();
  while (at != current_.begin() + static_cast<std::ptrdiff_t>(cursor_) && earlier(entry, *(at - 1))) --at;
  current_.insert(at, entry);
}

Event* EventQueue::pop(Ps limit) {
  if (cursor_ == current_.size() && !advance()) return nullptr;
  const Entry entry = current_[cursor_];
  if (entry.time > limit) return nullptr;
  ++cursor_;
  now_ = entry.time;
  if (++popped_ == adapt_at_) adapt();
  return entry.event;
}

bool EventQueue::empty() const noexcept {
  return cursor_ == current_.size() && far_.empty() && distance_to_next() == 0;
}

std::uint64_t EventQueue::distance_to_next() const noexcept {
  const std::uint64_t first = (base_ + 1) & mask();
  const std::uint64_t words = occupied_.size();
  std::uint64_t word = first / 64;
  std::uint64_t bits = occupied_[word] & (~std::uint64_t{0} << first % 64);
  // One word more than there are: the first is looked at from its other end, too.
  for (std::uint64_t n = 0; n <= words; ++n) {
    if (bits != 0) {
      const std::uint64_t at = word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
      return ((at - base_ - 1) & mask()) + 1;
    }
    word = word + 1 == words ? 0 : word + 1;
    bits = occupied_[word];
  }
  return 0;
}

bool EventQueue::advance() {
  current_.clear();
  cursor_ = 0;
  if (const std::uint64_t distance = distance_to_next(); distance != 0) {
    base_ += distance;
    const std::uint64_t at = base_ & mask();
    for (Event* event = buckets_[at]; event != nullptr; event = event->next)
      current_.push_back({event->time, event->order, event});
    buckets_[at] = nullptr;
    occupied_[at / 64] &= ~(std::uint64_t{1} << at % 64);
  } else if (!far_.empty()) {
    base_ = bucket_of(far_.front().time);
  } else {
    return false;
  }
  sort_current();
  take_from_far();
  fetch_ahead();
  return true;
}

/// Events are cold when their time comes: those of the next few buckets are fetched meanwhile, first the first of each,
/// and when its bucket is the next one, the second.
void EventQueue::fetch_ahead() const noexcept {
  constexpr int kBuckets = 4;
  const std::uint64_t first = (base_ + 1) & mask();
  std::uint64_t bits = occupied_[first / 64] & (~std::uint64_t{0} << first % 64);
  for (int n = 0; n < kBuckets && bits != 0; ++n, bits &= bits - 1) {
    const Event* const event =
        buckets_[(first & ~std::uint64_t{63}) + static_cast<std::uint64_t>(std::countr_zero(bits))];
    __builtin_prefetch(n == 0 ? event->next : event);
  }
}

void EventQueue::take_from_far() {
  while (!far_.empty() && bucket_of(far_.front().time) - base_ < buckets_.size()) {
    Event& event = *far_.front().event;
    std::pop_heap(far_.begin(), far_.end(), later<Entry>);
    far_.pop_back();
    place(event);
  }
}

void EventQueue::sort_current() {
  constexpr std::size_t kFew = 12;
  if (current_.size() > kFew) return std::sort(current_.begin(), current_.end(), earlier<Entry>);
  for (std::size_t i = 1; i < current_.size(); ++i) {
    const Entry entry = current_[i];
    std::size_t at = i;
    for (; at > 0 && earlier(entry, current_[at - 1]); --at) current_[at] = current_[at - 1];
    current_[at] = entry;
  }
}

/// A new width where the old one is far off. Which event is the earliest does not depend on it.
void EventQueue::adapt() {
  const std::uint64_t events = adapt_at_ == kFirstAdaption ? kFirstAdaption : kAdaptEvery;
  const auto gap = static_cast<std::uint64_t>(now_ - adapted_) / events;
  adapt_at_ += kAdaptEvery - (adapt_at_ == kFirstAdaption ? kFirstAdaption : 0);
  adapted_ = now_;
  const auto shift = std::clamp(static_cast<unsigned>(std::bit_width(gap)) + 1, kNarrowest, kWidest);
  if (shift + 1 >= shift_ && shift <= shift_ + 1) return;

  std::vector<Event*> all;
  for (std::size_t i = cursor_; i < current_.size(); ++i) all.push_back(current_[i].event);
  for (Event* list : buckets_)
    for (; list != nullptr; list = list->next) all.push_back(list);
  for (const Entry& entry : far_) all.push_back(entry.event);
  shift_ = shift;
  base_ = bucket_of(now_);
  current_.clear();
  cursor_ = 0;
  far_.clear();
  buckets_.assign(buckets_for(shift), nullptr);
  occupied_.assign(buckets_.size() / 64, 0);
  for (Event* event : all) place(*event);
}

}  // namespace tensorwire::fabric
