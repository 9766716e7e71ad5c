#include "transport/dcqcn.hpp"

#include <algorithm>
#include <utility>

namespace tensorwire::transport {

namespace {

constexpr std::uint64_t kGainUnit = 1024;
constexpr std::uint64_t kGigabit = 1'000'000'000;
/// Halving the distance never reaches the line rate; nearer than this part of it counts as there.
constexpr std::uint64_t kNearLineRate = 1024;

/// Time that so many bytes take at this rate; bytes up to 2^20.
constexpr Ps time_of(std::uint64_t bytes, std::uint64_t rate) noexcept {
  return static_cast<Ps>(bytes * 8 * static_cast<std::uint64_t>(kSecond) / rate);
}

static_assert(time_of(5000, 40 * kGigabit) == kMicrosecond);

}  // namespace

DcqcnConfig dcqcn_paper(std::uint64_t line_rate) noexcept {
  DcqcnConfig config;
  config.enabled = true;
  config.line_rate = line_rate;
  config.additive_increase = line_rate / 1000;
  config.hyper_increase = line_rate / 100;
  return config;
}

DcqcnConfig dcqcn_nic(std::uint64_t line_rate) noexcept {
  DcqcnConfig config;
  config.enabled = true;
  config.variant = DcqcnVariant::kNic;
  config.line_rate = line_rate;
  config.min_rate = std::min(kGigabit, line_rate / 10);
  config.additive_increase = line_rate / 5000;  // 5 Mb/s for each 25 Gb/s
  config.hyper_increase = line_rate / 500;
  config.fast_recovery_steps = 1;
  config.alpha_period = kMicrosecond;
  config.decrease_period = 4 * kMicrosecond;
  config.increase_period = 300 * kMicrosecond;
  config.cnp_interval = 4 * kMicrosecond;
  config.trailing_cnp = false;
  return config;
}

CnpPacer::Verdict CnpPacer::on_marked(const DcqcnConfig& config, Ps now) noexcept {
  if (now < next_) {
    if (!config.trailing_cnp || std::exchange(pending_, true)) return Verdict::kNothing;
    return Verdict::kLater;
  }
  pending_ = false;
  next_ = now + config.cnp_interval;
  return Verdict::kNow;
}

bool CnpPacer::on_deadline(const DcqcnConfig& config, Ps now) noexcept {
  if (!std::exchange(pending_, false)) return false;
  next_ = now + config.cnp_interval;
  return true;
}

void RateLimiter::activate(const DcqcnConfig& config, Ps now) noexcept {
  *this = {};
  active_ = true;
  rate_ = target_ = config.line_rate;
  alpha_ = kAlphaOne;
  next_allowed_ = seen_ = clock_ = now;
  horizon_ = now + config.fast_recovery_steps * config.increase_period;
  next_alpha_ = now + config.alpha_period;
  if (config.variant == DcqcnVariant::kNic) next_decrease_ = now + config.decrease_period;
}

void RateLimiter::on_cnp(const DcqcnConfig& config, Ps now) noexcept {
  if (active_) run_clock(config, now);
  const bool first = !active_;
  if (first) activate(config, now);
  if (config.variant == DcqcnVariant::kNic) {
    cnp_since_alpha_ = !first;  // alpha begins at one: the first CNP is in it
    cnp_since_decrease_ = true;
    return;
  }
  cut(config, clock_);
  raise_alpha(config);
  bytes_ = 0;
  byte_steps_ = 0;
  next_alpha_ = clock_ + config.alpha_period;
}

Ps RateLimiter::on_sent(const DcqcnConfig& config, std::uint32_t bytes, Ps now) noexcept {
  run_clock(config, now);
  if (!active_) return now;
  if (config.variant == DcqcnVariant::kPaper) {
    for (bytes_ += bytes; active_ && bytes_ >= config.increase_bytes; bytes_ -= config.increase_bytes) {
      ++byte_steps_;
      increase(config);
    }
    if (!active_) return now;
  }
  const Ps burst = time_of(config.burst_bytes, rate_);
  next_allowed_ = std::max(next_allowed_, now - burst) + time_of(bytes, rate_);
  horizon_ = std::max(now, next_allowed_) + config.fast_recovery_steps * config.increase_period;
  return next_allowed_;
}

void RateLimiter::run_clock(const DcqcnConfig& config, Ps now) noexcept {
  if (now <= seen_) return;
  const Ps until = std::min(now, horizon_);
  if (until > seen_) clock_ += until - seen_;
  seen_ = now;
  while (active_ && std::min({next_alpha_, next_decrease_, next_increase_}) <= clock_) fire(config);
}

/// The earliest timer; of equal ones alpha first, so that a cut uses the newest estimate.
void RateLimiter::fire(const DcqcnConfig& config) noexcept {
  const Ps earliest = std::min({next_alpha_, next_decrease_, next_increase_});
  if (next_alpha_ == earliest) {
    next_alpha_ += config.alpha_period;
    on_alpha_timer(config);
  } else if (next_decrease_ == earliest) {
    next_decrease_ += config.decrease_period;
    on_decrease_timer(config);
  } else {
    next_increase_ += config.increase_period;
    ++timer_steps_;
    increase(config);
  }
}

void RateLimiter::on_alpha_timer(const DcqcnConfig& config) noexcept {
  if (std::exchange(cnp_since_alpha_, false)) {
    raise_alpha(config);
  } else {
    decay_alpha(config);
  }
}

void RateLimiter::on_decrease_timer(const DcqcnConfig& config) noexcept {
  if (std::exchange(cnp_since_decrease_, false)) cut(config, next_decrease_ - config.decrease_period);
}

void RateLimiter::cut(const DcqcnConfig& config, Ps at) noexcept {
  target_ = rate_;
  rate_ -= rate_ / 2 * alpha_ / kAlphaOne;
  rate_ = std::max(rate_, std::min(config.min_rate, config.line_rate));
  timer_steps_ = 0;
  next_increase_ = at + config.increase_period;
}

void RateLimiter::raise_alpha(const DcqcnConfig& config) noexcept {
  decay_alpha(config);
  alpha_ += kAlphaOne * config.gain / kGainUnit;
}

void RateLimiter::decay_alpha(const DcqcnConfig& config) noexcept { alpha_ -= alpha_ * config.gain / kGainUnit; }

void RateLimiter::increase(const DcqcnConfig& config) noexcept {
  raise_target(config);
  target_ = std::min(target_, config.line_rate);
  rate_ = (target_ + rate_) / 2;
  active_ = rate_ < config.line_rate - config.line_rate / kNearLineRate;
}

/// Fast recovery, then additive, then hyper increase. The paper counts both timer and bytes: hyper needs both.
void RateLimiter::raise_target(const DcqcnConfig& config) noexcept {
  const bool paper = config.variant == DcqcnVariant::kPaper;
  const std::uint32_t done = paper ? 0 : 1;  // a card looks at the number of steps before this one
  const std::uint32_t most = std::max(timer_steps_, byte_steps_) - done;
  const std::uint32_t least = paper ? std::min(timer_steps_, byte_steps_) : most;
  if (most < config.fast_recovery_steps) return;
  if (least <= config.fast_recovery_steps) {
    target_ += config.additive_increase;
  } else {
    target_ += config.hyper_increase * (paper ? least - config.fast_recovery_steps : 1);
  }
}

}  // namespace tensorwire::transport
