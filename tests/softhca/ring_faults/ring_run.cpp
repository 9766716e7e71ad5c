#include "ring_run.hpp"

#include <algorithm>

#include "transport/faults/violation.hpp"

namespace tensorwire::softhca::faults {

using namespace transport;
using transport::faults::End;
using transport::faults::Fault;
using transport::faults::require;
using transport::faults::Scenario;

namespace {

constexpr std::uint32_t bit(Fault fault) { return 1U << static_cast<unsigned>(fault); }

/// What the network does is for the packets of mixed runs. Pauses are our own.
Scenario choose_scenario(Random& random) {
  Scenario scenario(random);
  scenario.choose_features(random);
  scenario.datagrams = 0;  // no channel carries them
  scenario.faults &= ~bit(Fault::kPause);
  scenario.whole = false;  // of packets
  // Nothing is lost on a ring, so larger windows are what one sees there.
  scenario.path_window = 1ULL << (12 + random.below(12));
  scenario.engine.qp_window_bytes = 1ULL << (12 + random.below(12));
  scenario.deepest_queue = 60;
  scenario.disturb = 8'000 + random.below(30'000);
  return scenario;
}

}  // namespace

RingRun::RingRun(std::uint64_t seed, RingWorkspace& workspace)
    : Run(seed, workspace, choose_scenario), points_(workspace) {
  for (std::size_t i = 0; i < hosts_.size(); ++i) hosts_[i].engine.count_withdrawals(&withdrawals_[i]);
  mixed_ = random_.below(6) == 0;
  stalls_ = !mixed_ && random_.below(6) == 0;
  inline_bytes_ = std::array{0U, 64U, 512U, 512U, 4096U}[random_.below(5)];
  reserve_ = random_.below(2) == 0 ? kLargestBatch : kRingSlots - kLargestBatch - random_.below(64);
  if (stalls_) {
    reserve_ = largest_batch_ = 1 + random_.below(4);
    scenario_.eager = 700'000;
    scenario_.disturb = 30'000;
  }
  pull_bytes_ = 1U << (8 + random_.below(8));
}

/// Each pair of addresses has a channel of its own.
RingRun::Route RingRun::route(const Connection& connection, std::size_t side) {
  const wire::Gid& address = connection.ends[side].gid;
  const std::size_t from = connection.ends[side].host_number;
  const std::size_t to = connection.ends[1 - side].host_number;
  if (mixed_ && from < to) return {paths_[from], false};
  const auto joins = [&](const Channel& channel) {
    return channel.from == from && channel.to == to && channel.out != nullptr && channel.sender == address;
  };
  for (const Channel& channel : channels_)
    if (joins(channel) && channel.out->alive()) return {channel.path, true};
  if (std::any_of(channels_.begin(), channels_.end(), joins)) points_.hit(RingPoint::kReconnected);
  const auto beside = [&](const Channel& channel) {
    return channel.from == from && channel.to == to && channel.out != nullptr && channel.sender != address;
  };
  if (std::any_of(channels_.begin(), channels_.end(), beside)) points_.hit(RingPoint::kSecondAddress);
  Channel& made = channels_.emplace_back(from, to, address, random_.below(4) == 0, withdrawals_[from]);
  made.path = hosts_[from].engine.create_path({scenario_.path_window, true});
  // Its consumer may be asleep already, and is asked to look at this ring, too.
  if (sleepers_[to].asleep) made.consumer_asks = made.in->ring().prepare_sleep();
  return {made.path, true};
}

Channel* RingRun::channel_of(std::size_t host, PathId path) noexcept {
  for (Channel& channel : channels_)
    if (channel.from == host && channel.out != nullptr && channel.path == path) return &channel;
  return nullptr;
}

bool RingRun::blocked(std::size_t host, PathId path) const noexcept {
  for (const Channel& channel : channels_)
    if (channel.from == host && channel.out != nullptr && channel.path == path) return channel.blocked;
  return Run::blocked(host, path);
}

RingRun::Next RingRun::next_arrival() const noexcept {
  Next next = Run::next_arrival();
  const auto consider = [&](Ps time, std::size_t host, std::size_t index, What what) {
    if (time == kNever) return;
    time = std::max({now_, time, hosts_[host].paused_until});
    if (time < next.time) next = {Event::kArrival, time, index, what};
  };
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    const Channel& channel = channels_[i];
    if (channel.in && !sleepers_[channel.to].asleep) consider(channel.visit_at, channel.to, i, kVisit);
    if (channel.blocked && !sleepers_[channel.from].asleep) consider(channel.look_at, channel.from, i, kLook);
    if (channel.in) consider(channel.in_dies_at, channel.to, i, kInDies);
    consider(channel.out_dies_at, channel.from, i, kOutDies);
  }
  for (std::size_t i = 0; i < hosts_.size(); ++i)
    if (sleepers_[i].asleep) consider(sleepers_[i].wake_at, i, i, kWake);
  return next;
}

void RingRun::arrive(const Next& next) {
  switch (next.side) {
    case kVisit:
      return visit(channels_[next.index]);
    case kLook:
      return look_for_room(channels_[next.index]);
    case kInDies:
      return consumer_dies(channels_[next.index]);
    case kOutDies:
      return producer_dies(channels_[next.index]);
    case kWake:
      return wake_up(next.index);
    default:
      return Run::arrive(next);
  }
}

/// At RTR a queue pair takes the way that there is then.
void RingRun::step(Connection& connection, std::size_t side) {
  End& end = connection.ends[side];
  if (end.ref.state == QpState::kInit) end.path = route(connection, side).path;
  Run::step(connection, side);
}

void RingRun::disturb() {
  if (random_.below(2) == 0) return Run::disturb();
  if (channels_.empty()) return;
  harm(channels_[random_.below(static_cast<std::uint32_t>(channels_.size()))]);
}

void RingRun::harm(Channel& channel) {
  const Ps soon = now_ + random_.below(200) * kMicrosecond;
  const Ps later = now_ + (10 + random_.below(1'500)) * kMicrosecond;
  const bool alive = channel.in && channel.out && channel.out->alive();
  switch (stalls_ ? 0 : random_.below(10)) {
    case 0:
      if (stalls_ && channel.to != 0) return;
      points_.hit(RingPoint::kPauseHost);
      trace_.note(now_, channel.to, "paused");
      hosts_[channel.to].paused_until = stalls_ ? now_ + 5 * kMillisecond : later;
      return;
    case 1:
      if (!sleepers_[channel.to].asleep || sleepers_[channel.to].wake_at != kNever) return fall_asleep(channel.to);
      points_.hit(RingPoint::kSpuriousWake);
      sleepers_[channel.to].wake_at = now_;
      return;
    case 2:
      if (!channel.same_process) channel.breaks = Channel::Break::kSource;
      return;
    case 3:
      if (!channel.same_process) {
        channel.breaks = Channel::Break::kTarget;
      } else {
        hosts_[channel.to].memory.failing_stores = 1;
      }
      return;
    case 4:
      if (!alive || channel.same_process || random_.below(2) == 0) return;
      points_.hit(RingPoint::kStranger);
      trace_.note(now_, channel.from, "another process has its process id");
      *channel.probe ^= 1;
      return;
    case 5:
      if (!alive || random_.below(2) == 0) return;
      points_.hit(RingPoint::kProducerDied);
      trace_.note(now_, channel.from, "channel hung up by its producer");
      channel.out_dies_at = now_;
      channel.in_dies_at = soon;
      return;
    case 6:
      if (!alive || random_.below(2) == 0) return;
      points_.hit(RingPoint::kConsumerDied);
      trace_.note(now_, channel.to, "channel hung up by its consumer");
      return abandon(channel);
    case 7:
      if (scenario_.has(Fault::kForge)) rewrite_what_is_pulled();
      return;
    case 8:
      if (scenario_.has(Fault::kForge)) forge_nowhere();
      return;
    default:
      if (!alive || !scenario_.has(Fault::kForge) || random_.below(4) != 0) return;
      points_.hit(RingPoint::kHostileFreed);
      trace_.note(now_, channel.to, "more given back than was written");
      channel.memory->layout().freed = channel.published + 1 + random_.below(2) * (random_.next() >> 1U);
      channel.lied = true;
      abandon(channel);
      channel.out_dies_at = later;  // at the latest
  }
}

void RingRun::calm() {
  Run::calm();
  for (SimHost& host : hosts_) host.paused_until = 0;
  for (Channel& channel : channels_) channel.breaks = Channel::Break::kNothing;
}

}  // namespace tensorwire::softhca::faults
