#include "softhca/cq.hpp"

#include <sched.h>

#include "softhca/hca_impl.hpp"

namespace tensorwire::softhca {

namespace {

/// Empty polls in a row after which each further one offers the core to others: with more pollers than cores, the one
/// that is waited for must get to run. About 30 us of polling.
constexpr std::uint32_t kPatience = 64;

}  // namespace

CqImpl::CqImpl(HcaImpl& hca, std::uint32_t capacity, CqCallback callback)
    : hca_(hca), callback_(callback), ring_(capacity, this) {}

CqImpl::~CqImpl() {
  hca_.forget(*this);
  while (callbacks_running_.load() != 0) sched_yield();
}

std::size_t CqImpl::take(std::span<transport::Completion> out) noexcept {
  const std::lock_guard guard{consumer_mutex_};
  const std::size_t taken = ring_.poll(out);
  if (taken != 0) empty_polls_.store(0, std::memory_order_relaxed);
  return taken;
}

std::size_t CqImpl::poll(std::span<transport::Completion> out) noexcept {
  if (const std::size_t taken = take(out); taken != 0) return taken;
  hca_.progress_inline(Shard::Depth::kPoll);
  if (const std::size_t taken = take(out); taken != 0) return taken;
  if (empty_polls_.fetch_add(1, std::memory_order_relaxed) >= kPatience) sched_yield();
  return 0;
}

void CqImpl::arm(bool solicited_only) noexcept {
  {
    const std::lock_guard guard{consumer_mutex_};
    ring_.arm(solicited_only);
  }
  hca_.expect_blocking();
}

void CqImpl::on_completion_event(transport::CompletionQueue&) noexcept { hca_.shard().note_completion(*this); }

void CqImpl::on_overrun(transport::CompletionQueue&) noexcept {
  hca_.shard().note_event({.event = HcaEvent::kCqError, .object = this, .user = callback_.user});
}

void CqImpl::run_callback() noexcept {
  if (callback_.function != nullptr) callback_.function(callback_.user);
  callbacks_running_.fetch_sub(1);
}

}  // namespace tensorwire::softhca
