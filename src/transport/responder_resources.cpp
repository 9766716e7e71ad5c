#include "transport/responder_resources.hpp"

namespace tensorwire::transport {

void ResponderResources::reset(std::uint32_t depth) noexcept {
  set_depth(depth);
  first_ = count_ = pending_ = 0;
}

void ResponderResources::set_depth(std::uint32_t depth) noexcept {
  depth_ = depth;
  if (depth != 0 && records_.empty()) records_.resize(kMaxRdAtomic);
}

void ResponderResources::resize(std::uint32_t depth) noexcept {
  while (count_ > depth) forget_oldest();
  set_depth(depth);
}

void ResponderResources::forget_oldest() noexcept {
  if (at(0).pending) --pending_;
  first_ = (first_ + 1) % kMaxRdAtomic;
  --count_;
}

bool ResponderResources::has_room() const noexcept {
  if (count_ < depth_) return true;
  return depth_ != 0 && at(0).answered;
}

void ResponderResources::add(const FetchRecord& record) noexcept {
  if (count_ == depth_) forget_oldest();  // if it is pending, that is a repetition which the peer needs no more
  FetchRecord& kept = at(count_++);
  kept = record;
  kept.pending = false;
  start_reply(kept, 0, record.length);
}

FetchRecord* ResponderResources::find(std::uint64_t position) noexcept {
  for (std::uint32_t n = 0; n < count_; ++n) {
    FetchRecord& record = at(n);
    if (position >= record.position && position - record.position < record.psns) return &record;
  }
  return nullptr;
}

std::uint64_t ResponderResources::next_after(std::uint64_t position, std::uint64_t otherwise) const noexcept {
  for (std::uint32_t n = 0; n < count_; ++n)
    if (at(n).position > position) return at(n).position;
  return otherwise;
}

FetchRecord& ResponderResources::oldest_pending() noexcept {
  std::uint32_t n = 0;
  while (!at(n).pending) ++n;
  return at(n);
}

void ResponderResources::start_reply(FetchRecord& record, std::uint32_t first, std::uint32_t reply_length) noexcept {
  if (!record.pending) ++pending_;
  record.pending = true;
  record.reply_first = first;
  record.reply_length = reply_length;
  record.reply_sent = 0;
}

void ResponderResources::finish_reply(FetchRecord& record) noexcept {
  record.pending = false;
  record.answered = true;
  --pending_;
}

void ResponderResources::drop_replies() noexcept {
  for (std::uint32_t n = 0; n < count_; ++n) at(n).pending = false;
  pending_ = 0;
}

}  // namespace tensorwire::transport
