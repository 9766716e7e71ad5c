// Memory windows (IB specification vol. 1, 10.6.7), and the requests that bind and invalidate them: done in
// their turn among what is sent, without a packet, once.
#include <algorithm>

#include "reference_qp.hpp"
#include "transport/scheduler.hpp"
#include "violation.hpp"

namespace tensorwire::transport::faults {
namespace {

/// The low eight bits are the binder's choice.
std::uint32_t number_of(std::uint32_t key) { return key >> 8; }

template <typename Windows>
auto find_window(Windows& windows, std::uint32_t key) {
  return std::find_if(windows.begin(), windows.end(),
                      [&](const ReferenceWindow& window) { return number_of(window.key) == number_of(key); });
}

}  // namespace

AccessResult Registrations::reach(std::uint32_t key, PdId pd, std::uint32_t qpn, std::uint64_t address,
                                  std::uint64_t length, std::uint32_t rights) const noexcept {
  if (const AccessResult result = check(key, pd, address, length, rights); result != AccessResult::kBadKey)
    return result;
  const auto window = find_window(windows, key);
  if (window == windows.end() || window->key != key || !window->bound) return AccessResult::kBadKey;
  if (window->pd != pd || (window->type == WindowType::k2 && window->qpn != qpn)) return AccessResult::kWrongPd;
  const WindowBinding& to = window->binding;
  if (address < to.address || length > to.length || address - to.address > to.length - length)
    return AccessResult::kOutOfRange;
  return (to.access & rights) == rights ? AccessResult::kOk : AccessResult::kNoRight;
}

const ReferenceWindow& Registrations::window(std::uint32_t key) const noexcept { return *find_window(windows, key); }

bool Registrations::can_invalidate(std::uint32_t key, PdId pd, std::uint32_t qpn) const noexcept {
  const auto window = find_window(windows, key);
  return window != windows.end() && window->key == key && window->type == WindowType::k2 && window->bound &&
         window->pd == pd && window->qpn == qpn;
}

void Registrations::invalidate(std::uint32_t key) noexcept { find_window(windows, key)->bound = false; }

bool Registrations::can_bind(std::uint32_t key, const WindowBinding& binding, PdId pd) const noexcept {
  const auto window = find_window(windows, key);
  if (window == windows.end() || window->pd != pd) return false;
  const bool any_time = window->type == WindowType::k1;
  if (binding.length == 0) return any_time;
  return (any_time || !window->bound) &&
         check(binding.lkey, pd, binding.address, binding.length, kAccessWindowBind) == AccessResult::kOk;
}

void Registrations::bind(std::uint32_t key, const WindowBinding& binding, std::uint32_t qpn) noexcept {
  const auto window = find_window(windows, key);
  *window = {window->type, key, window->pd, binding.length != 0, qpn, binding};
}

bool Registrations::held(std::uint32_t region_key) const noexcept {
  return std::any_of(windows.begin(), windows.end(),
                     [&](const ReferenceWindow& window) { return window.bound && window.binding.lkey == region_key; });
}

// ---- local requests

const ReferenceQp::Send* ReferenceQp::due_local() const noexcept {
  if (!sending() || waiting_ || lost_ != kNone || next != high) return nullptr;
  for (std::size_t i = head_; i < sends_.size(); ++i) {
    const Send& send = sends_[i];
    if (send.local && !send.executed) return send.first == high ? &send : nullptr;
  }
  return nullptr;
}

bool ReferenceQp::possible(const Send& local) const noexcept {
  if (local.opcode == WrOpcode::kBindWindow) return registrations_.can_bind(local.rkey, local.binding, config.pd);
  return registrations_.can_invalidate(local.rkey, config.pd, config.qpn);
}

bool ReferenceQp::local_broken() const noexcept {
  const Send* local = due_local();
  if (state == QpState::kSqd && !draining_) return false;  // nobody looks at what was not begun
  return local != nullptr && local == &sends_[head_] && !possible(*local);
}

bool ReferenceQp::local_ready(const Send& local) const noexcept {
  if (state == QpState::kSqd) {
    hits_(Point::kDrainHolds);
    return false;
  }
  if (&local != &sends_[head_] && !possible(local)) return false;  // fails when those before it are done
  return may_leave(local) && (in_flight == 0 || in_flight + kMinPacketCharge <= config.window);
}

/// It was the turn of the local requests before `send` when that one left.
void ReferenceQp::pass_locals(const Send& send) {
  while (const Send* local = due_local()) {
    if (local > &send) return;
    execute_local(*local);
  }
}

void ReferenceQp::observe_local(const MemoryTable& memory) {
  const Send* local = due_local();
  if (local == nullptr || !possible(*local)) return;
  const bool closes = local->opcode == WrOpcode::kLocalInvalidate || local->binding.length == 0;
  const std::uint32_t key = closes ? registrations_.window(local->rkey).key : local->rkey;
  Piece piece;
  const bool stands = memory.check_window(key, config.pd, config.qpn, 0, 0, 0, piece) != AccessResult::kBadKey;
  if (stands != closes) execute_local(*local);
}

void ReferenceQp::execute_local(const Send& local) {
  require(state == QpState::kRts, "in SQD no local request is executed");
  require(may_leave(local), "a fenced local request waits for READs and atomics");
  require(possible(local), "a local request that must fail is not passed");
  if (local.opcode == WrOpcode::kBindWindow) {
    hits_(local.binding.length == 0                 ? Point::kWindowUnbound
          : registrations_.window(local.rkey).bound ? Point::kWindowBoundAnew
                                                    : Point::kWindowBound);
    registrations_.bind(local.rkey, local.binding, config.qpn);
  } else {
    hits_(Point::kWindowInvalidated);
    registrations_.invalidate(local.rkey);
  }
  sends_[static_cast<std::size_t>(&local - sends_.data())].executed = true;
  if (&local != &sends_[head_]) hits_(Point::kLocalWaits);
  while (sends_pending() && sends_[head_].local && sends_[head_].executed) complete_send(WcStatus::kSuccess);
}

}  // namespace tensorwire::transport::faults
