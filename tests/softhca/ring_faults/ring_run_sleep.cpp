// Who sleeps, who has to be woken for what, and who blocks a path: what LocalLink does around its channels, event by
// event. A bell that is not rung when it must be, or rung when it need not be, is a violation at once.
#include "ring_run.hpp"
#include "transport/faults/violation.hpp"

namespace tensorwire::softhca::faults {

using transport::faults::require;

/// Asks every ring for a bell. Where there is work already, nobody sleeps.
void RingRun::fall_asleep(std::size_t host) {
  if (sleepers_[host].asleep) return;
  bool quiet = true;
  for (Channel& channel : channels_) {
    if (channel.to == host && channel.in) {
      const bool asks = channel.in->ring().prepare_sleep();
      require(asks == channel.records.empty(), "who wants to sleep sees whether there are records");
      channel.consumer_asks = asks;
      quiet = quiet && asks;
    }
    if (channel.from == host && channel.blocked) {
      const bool asks = !channel.lied && channel.out->ring().prepare_sleep(reserve_);
      require(channel.lied || asks == !channel.has_room(reserve_), "who wants to sleep sees whether there is room");
      channel.producer_asks = asks;
      quiet = quiet && asks && channel.out->alive();
    }
  }
  sleepers_[host].asleep = true;
  if (quiet) {
    points_.hit(RingPoint::kSlept);
  } else {
    points_.hit(RingPoint::kKeptAwake);
    wake_up(host);
  }
}

void RingRun::wake_up(std::size_t host) {
  sleepers_[host] = {};
  for (Channel& channel : channels_) {
    if (channel.to == host && channel.in) {
      channel.in->ring().end_sleep();
      channel.consumer_asks = false;
      channel.visit_at = now_;
    }
    if (channel.from == host && channel.out) {
      channel.out->ring().end_sleep();
      channel.producer_asks = false;
      if (channel.blocked) channel.look_at = now_;
    }
  }
}

/// The bell is heard sooner or later.
void RingRun::ring_the_bell(std::size_t host) {
  Ps delay = random_.below(20) * kMicrosecond;
  if (!calm_ && random_.below(16) == 0) {
    points_.hit(RingPoint::kLateWake);
    delay = random_.below(1'500) * kMicrosecond;
  }
  sleepers_[host].wake_at = std::min(sleepers_[host].wake_at, now_ + delay);
}

/// As LocalLink does when the room runs short.
void RingRun::block(Channel& channel) {
  if (sleepers_[channel.from].asleep) {
    channel.producer_asks = channel.out->ring().prepare_sleep(reserve_);
    require(channel.lied || channel.producer_asks == !channel.has_room(reserve_),
            "who wants to sleep sees whether there is room");
    if (!channel.producer_asks) return;
  }
  points_.hit(RingPoint::kBlocked);
  channel.blocked = true;
  channel.look_at = kNever;
  hosts_[channel.from].engine.set_path_blocked(channel.path, true);
}

void RingRun::look_for_room(Channel& channel) {
  channel.look_at = kNever;
  const bool room = channel.out->has_room(reserve_);
  require(channel.lied || room == (!channel.out->alive() || channel.has_room(reserve_)),
          "who looks for room sees what was given back");
  if (!room) return;
  points_.hit(RingPoint::kUnblocked);
  channel.blocked = false;
  hosts_[channel.from].engine.set_path_blocked(channel.path, false);
  settle(channel.from);
}

/// The consumer sees that its peer hung up: what was written before is still taken.
void RingRun::consumer_dies(Channel& channel) {
  channel.in_dies_at = kNever;
  channel.in->hang_up();
  channel.hung_up = true;
  if (channel.records.empty()) {
    require(channel.in->finished(), "a channel without a peer and without records is finished");
    abandon(channel);
  } else {
    require(!channel.in->finished(), "a channel with records is not finished");
  }
}

/// The producer sees that its peer hung up: what it sends from here on vanishes.
void RingRun::producer_dies(Channel& channel) {
  channel.out_dies_at = kNever;
  if (channel.lied && channel.memory->layout().freed > channel.published)
    require(channel.out->has_room(kRingSlots + 1), "a lie about what was given back is found");
  channel.out->kill();
  if (channel.blocked) look_for_room(channel);
}

}  // namespace tensorwire::softhca::faults
