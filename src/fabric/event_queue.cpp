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
/// The window grows by buckets that are so near: were it long, too much would have to be put in between.
constexpr std::uint64_t kNear = 16;
/// What was popped stays in the window until it is so much.
constexpr std::size_t kMostPopped = 256;

constexpr std::uint64_t buckets_for(unsigned shift) noexcept {
  return std::clamp(std::bit_ceil(kReach >> shift), kFewestBuckets, kMostBuckets);
}

}  // namespace

EventQueue::EventQueue(std::size_t ahead)
    : ahead_(ahead),
      shift_(kFirstShift),
      buckets_(buckets_for(kFirstShift)),
      occupied_(buckets_.size() / 64),
      adapt_at_(kFirstAdaption) {}

void EventQueue::place(const Event& event) { push(event.time, event.kind(), event.target(), event.packet); }

void EventQueue::place_outside(const Event& event) {
  if (bucket_of(event.time) <= base_) return insert(event);
  far_.push_back({event, next_order_++});
  std::push_heap(far_.begin(), far_.end(), later);
}

void EventQueue::add_chunk(Bucket& bucket, std::uint64_t at) {
  const std::uint32_t chunk = chunks_.take();
  if (chunk >= next_chunk_.size()) next_chunk_.resize(chunk + 1);
  (bucket.count == 1 ? bucket.first : next_chunk_[bucket.last]) = chunk;
  bucket.last = chunk;
  occupied_[at / 64] |= std::uint64_t{1} << at % 64;
}

/// Behind those of the same time.
void EventQueue::insert(const Event& event) {
  std::size_t at = window_.size();
  while (at > cursor_ && event.time < window_[at - 1].time) --at;
  window_.insert(window_.begin() + static_cast<std::ptrdiff_t>(at), event);
}

bool EventQueue::empty() const noexcept { return cursor_ == window_.size() && far_.empty() && distance_to_next() == 0; }

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

std::uint64_t EventQueue::distance_to_near() const noexcept {
  const std::uint64_t first = (base_ + 1) & mask();
  const std::uint64_t used = first % 64;
  std::uint64_t bits = occupied_[first / 64] >> used;
  if (used > 64 - kNear) bits |= occupied_[(first / 64 + 1) % occupied_.size()] << (64 - used);
  const auto skipped = static_cast<std::uint64_t>(std::countr_zero(bits));
  return skipped < kNear ? skipped + 1 : 0;
}

bool EventQueue::fill() {
  if (cursor_ == window_.size() || cursor_ >= kMostPopped) forget_popped();
  if (window_.empty()) {
    if (const std::uint64_t distance = distance_to_next(); distance != 0) {
      move_to_window(distance);
    } else if (!far_.empty()) {
      base_ = bucket_of(far_.front().event.time);
      take_from_far();
    } else {
      return false;
    }
  }
  const std::uint64_t last = bucket_of(now_) + kNear;
  while (window_.size() - cursor_ < ahead_ && base_ < last) {
    const std::uint64_t distance = distance_to_near();
    if (distance == 0) break;
    move_to_window(distance);
  }
  return true;
}

void EventQueue::forget_popped() noexcept {
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(cursor_));
  cursor_ = 0;
}

void EventQueue::move_to_window(std::uint64_t distance) {
  base_ += distance;
  const std::uint64_t at = base_ & mask();
  Bucket& bucket = buckets_[at];
  const std::size_t from = window_.size();
  empty_into(bucket, window_);
  occupied_[at / 64] &= ~(std::uint64_t{1} << at % 64);
  if (ahead_ > 1) fetch_next_bucket();
  sort_window(from);
  take_from_far();
}

void EventQueue::empty_into(Bucket& bucket, std::vector<Event>& events) {
  for (std::uint32_t chunk = bucket.first, left = bucket.count; left != 0; chunk = next_chunk_[chunk]) {
    const std::uint32_t here = std::min(left, Chunk::kEvents);
    const auto& moved = chunks_[chunk].events;
    for (std::uint32_t n = 0; n < here; ++n) events.push_back(moved[n]);
    chunks_.give_back(chunk);
    left -= here;
  }
  bucket.count = 0;
}

void EventQueue::fetch_next_bucket() const noexcept {
  const std::uint64_t distance = distance_to_near();
  if (distance == 0) return;
  const Event* const events = chunks_[buckets_[(base_ + distance) & mask()].first].events.data();
  __builtin_prefetch(events);
  __builtin_prefetch(events + Chunk::kEvents / 2);
}

void EventQueue::take_from_far() {
  while (!far_.empty() && bucket_of(far_.front().event.time) - base_ < buckets_.size()) {
    std::pop_heap(far_.begin(), far_.end(), later);
    const Event event = far_.back().event;
    far_.pop_back();
    place(event);
  }
}

/// What came later stays behind what has the same time.
void EventQueue::sort_window(std::size_t from) {
  constexpr std::size_t kFew = 12;
  const auto begin = window_.begin() + static_cast<std::ptrdiff_t>(from);
  const auto earlier = [](const Event& a, const Event& b) { return a.time < b.time; };
  if (window_.size() - from > kFew) {
    if (!std::is_sorted(begin, window_.end(), earlier)) std::stable_sort(begin, window_.end(), earlier);
    return;
  }
  for (std::size_t i = from + 1; i < window_.size(); ++i) {
    if (window_[i - 1].time <= window_[i].time) continue;
    const Event event = window_[i];
    std::size_t at = i;
    for (; at > from && event.time < window_[at - 1].time; --at) window_[at] = window_[at - 1];
    window_[at] = event;
  }
}

/// A new width where the old one is far off. Which event is the earliest does not depend on it.
void EventQueue::adapt() {
  const std::uint64_t events = adapt_at_ == kFirstAdaption ? kFirstAdaption : kAdaptEvery;
  const auto gap = static_cast<std::uint64_t>(now_ - adapted_) / events;
  adapt_at_ += kAdaptEvery - (adapt_at_ == kFirstAdaption ? kFirstAdaption : 0);
  adapted_ = now_;
  const auto shift = std::clamp(static_cast<unsigned>(std::bit_width(gap)) + 2, kNarrowest, kWidest);
  if (shift + 1 >= shift_ && shift <= shift_ + 1) return;

  // Each bucket is in order where it matters, and so is what is put together of them.
  std::vector<Event> all(window_.begin() + static_cast<std::ptrdiff_t>(cursor_), window_.end());
  for (Bucket& bucket : buckets_) empty_into(bucket, all);
  std::vector<Far> far;
  far.swap(far_);
  std::ranges::sort(far, [](const Far& a, const Far& b) { return later(b, a); });
  for (const Far& entry : far) all.push_back(entry.event);
  window_.resize(cursor_);
  shift_ = shift;
  base_ = bucket_of(now_);
  buckets_.assign(buckets_for(shift), {});
  occupied_.assign(buckets_.size() / 64, 0);
  for (const Event& event : all) place(event);
}

}  // namespace tensorwire::fabric
