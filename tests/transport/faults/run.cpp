#include "run.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "violation.hpp"

namespace tensorwire::transport::faults {
namespace {

constexpr std::uint64_t kMaxEvents = 400'000;
/// From here on the network behaves, so that what is left must be finished.
constexpr std::uint64_t kFaultyEvents = 12'000;
constexpr std::uint64_t kLater = 0x6c61746572;
constexpr std::uint64_t kUnreliable = 0x7563;
constexpr std::uint64_t kWindows = 0x6d77;
// Per million events.
constexpr std::uint32_t kForgeries = 15'000;
constexpr std::uint32_t kUnreliableDisturbed = 20'000;
constexpr std::uint32_t kUnreliablePosts = 300'000;

}  // namespace

std::vector<Tally> Workspace::tally() const {
  std::vector<Tally> all;
  for (std::size_t i = 0; i < kPointNames.size(); ++i) all.push_back({kPointNames[i], hits.counts[i]});
  return all;
}

Run::Run(std::uint64_t seed, Workspace& workspace)
    : Run(seed, workspace, [](Random& random) {
        Scenario scenario(random);
        scenario.choose_features(random);
        return scenario;
      }) {}

Run::Run(std::uint64_t seed, Workspace& workspace, Scenario (*choose)(Random&))
    : workspace_(workspace),
      hits_(workspace.hits),
      random_(mix64(seed)),
      later_(mix64(seed ^ kLater)),
      unreliable_(mix64(seed ^ kUnreliable)),
      windows_(mix64(seed ^ kWindows)),
      scenario_(choose(random_)),
      adversary_(scenario_, random_, hits_) {
  make_later();
  make_hosts();
}

void Run::make_later() {
  if (later_.below(3) == 0) scenario_.drain = 2'000 + later_.below(40'000);
  if (unreliable_.below(3) == 0) scenario_.unreliable = 1 + unreliable_.below(2);
  if (windows_.below(4) == 0) scenario_.windows = 20'000 + windows_.below(100'000);
}

void Run::make_hosts() {
  for (std::size_t i = 0; i < scenario_.hosts; ++i) {
    scenario_.engine.seed = mix64(scenario_.engine.seed);
    hosts_.emplace_back(i, scenario_.engine, workspace_.arenas[i], scenario_.cq_entries);
    host_list_.push_back(&hosts_.back());
    paths_[i] = hosts_[i].engine.create_path({scenario_.path_window, scenario_.whole});
    if (scenario_.shared) shared_[i] = &shared_queues_.emplace_back(scenario_, random_, hits_, hosts_[i]);
  }
}

void Run::set_up() {
  make_connections();
  make_datagrams();
  make_unreliable();
  make_slots();
}

void Run::make_connections() {
  const std::uint32_t share = kRequestsPerSeed / (2 * scenario_.connections) + 1;
  for (std::uint32_t i = 0; i < scenario_.connections; ++i) {
    const std::size_t a = random_.below(scenario_.hosts);
    const std::size_t b = (a + 1 + random_.below(scenario_.hosts - 1)) % scenario_.hosts;
    Connection& connection = connections_.emplace_back(scenario_, random_, hits_, hosts_[a], hosts_[b]);
    connection.ends[0].host_number = a;
    connection.ends[1].host_number = b;
    for (End& end : connection.ends)
      if (random_.below(4) != 0) end.srq = shared_[end.host_number];
    if (scenario_.windows != 0) connection.use_windows(windows_);
    connection.create(static_cast<std::uint8_t>(i), share + random_.below(10));
    for (std::size_t side = 0; side < 2; ++side) {
      const Route taken = route(connection, side);
      connection.ends[side].path = taken.path;
      connection.ends[side].whole = taken.whole;
      const std::size_t host = connection.ends[side].host_number;
      owners_[host][owner_count_[host]++] = {&connection, side};
      connection.join(side, now_);
    }
  }
}

Run::Route Run::route(const Connection& connection, std::size_t side) {
  return {paths_[connection.ends[side].host_number], scenario_.whole};
}

/// A slot has room for most messages.
void Run::make_slots() {
  constexpr std::uint32_t kLongest = 24 * 1024;
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    if (shared_[host] == nullptr) continue;
    std::uint32_t longest = 64;
    for (const Connection& connection : connections_)
      for (std::size_t side = 0; side < 2; ++side)
        if (connection.ends[1 - side].host_number == host)
          for (const Operation& op : connection.directions[side].operations.all)
            if (op.is_send()) longest = std::max(longest, op.length);
    shared_[host]->make_slots(std::min(longest, kLongest));
  }
}

Run::Owner Run::owner(std::size_t host, std::uint32_t qpn) noexcept {
  for (std::size_t i = 0; i < owner_count_[host]; ++i) {
    const Owner& candidate = owners_[host][i];
    if (candidate.connection->ends[candidate.side].qpn == qpn) return candidate;
  }
  return {};
}

void Run::go() {
  set_up();
  for (std::uint64_t events = 0; !finished(); ++events) {
    require(events < kMaxEvents, "every request ends in bounded time");
    if (!calm_) {
      if (events == kFaultyEvents) {
        calm();
        trace_.note(now_, 0, "the network behaves from now on");
      } else {
        if (random_.chance(scenario_.disturb)) disturb();
        if (scenario_.has(Fault::kForge) && random_.chance(kForgeries)) forge();
      }
    }
    if (later_.chance(scenario_.drain)) drain();
    if (windows_.chance(scenario_.windows)) post_local();
    if (scenario_.unreliable != 0 && !calm_ && unreliable_.chance(kUnreliableDisturbed)) disturb_unreliable();
    if (random_.chance(scenario_.eager)) post();
    const Next next = next_event();
    if (next.event != Event::kNone) {
      handle(next);
    } else {
      require(post() || finished(), "something is left to happen while a request is not finished");
    }
  }
  end();
}

// Arrivals before timers: a host drains its socket before it believes in a timeout.
Run::Next Run::next_event() const noexcept {
  Next next = next_arrival();
  const auto consider = [&next](Event event, Ps time, std::size_t index, std::size_t side = 0) {
    if (time < next.time) next = {event, time, index, side};
  };
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const SimHost& host = hosts_[i];
    if (host.engine.has_tx()) consider(Event::kTransmit, std::max({now_, host.egress_free, host.paused_until}), i);
  }
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (const Ps deadline = hosts_[i].engine.next_deadline(); deadline != kNever)
      consider(Event::kTimer, std::max(now_, deadline), i);
    if (blocked_until_[i] != 0) consider(Event::kUnblock, std::max(now_, blocked_until_[i]), i);
  }
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    const Connection& connection = connections_[i];
    for (std::size_t side = 0; side < 2; ++side)
      if (const Ps at = connection.ends[side].step_at; at != kNever)
        consider(Event::kStep, std::max(now_, at), i, side);
    if (connection.recover_at != kNever) consider(Event::kRecover, std::max(now_, connection.recover_at), i);
  }
  return next;
}

Run::Next Run::next_arrival() const noexcept {
  const Ps time = adversary_.next_arrival();
  return {time == kNever ? Event::kNone : Event::kArrival, time, 0, 0};
}

void Run::arrive(const Next&) { deliver(adversary_.take()); }

void Run::step(Connection& connection, std::size_t side) {
  if (connection.ends[side].ref.state == QpState::kSqd) {
    trace_.note(now_, connection.ends[side].host_number, "drained queue pair goes on");
    connection.resume(side, now_, later_);
  } else {
    connection.step(side, now_);
  }
  settle(connection.ends[side].host_number);
}

void Run::handle(const Next& next) {
  now_ = next.time;
  switch (next.event) {
    case Event::kArrival:
      return arrive(next);
    case Event::kTransmit:
      return transmit(next.index);
    case Event::kTimer:
      hosts_[next.index].engine.on_timer(now_);
      for (std::size_t i = 0; i < owner_count_[next.index]; ++i) {
        const Owner& owner = owners_[next.index][i];
        ReferenceQp& ref = owner.connection->ends[owner.side].ref;
        ref.on_timer(now_);
        ref.congestion.on_timer(now_);
      }
      for (UnreliableEnd& end : unreliable_ends_)
        if (end.host_number == next.index) end.ref.congestion.on_timer(now_);
      return settle(next.index);
    case Event::kStep:
      return step(connections_[next.index], next.side);
    case Event::kRecover:
      return recover(connections_[next.index]);
    case Event::kUnblock:
      blocked_until_[next.index] = 0;
      hosts_[next.index].engine.set_path_blocked(paths_[next.index], false);
      return settle(next.index);
    case Event::kNone:
      break;
  }
}

/// An end that is in the newest life and well stays there; otherwise a new life begins for both.
void Run::recover(Connection& connection) {
  connection.recover_at = kNever;
  const auto well = [&](const End& end) { return end.life == connection.life && end.ref.state != QpState::kErr; };
  const bool one_waits =
      well(connection.ends[0]) != well(connection.ends[1]) && connection.ends[0].life != connection.ends[1].life;
  if (!one_waits) connection.new_life();
  hits_(Point::kRecovered);
  for (std::size_t side = 0; side < 2; ++side) {  // both before settle(): a connection of two lives has failed
    if (connection.ends[side].life == connection.life) continue;
    trace_.note(now_, connection.ends[side].host_number, "queue pair reset");
    connection.join(side, now_);
  }
  for (const End& end : connection.ends) settle(end.host_number);
}

/// The application posts on some direction; when nothing else can happen, on all of them.
bool Run::post() {
  bool posted = false;
  const auto one = [&](Connection& connection, std::size_t side) {
    posted |= connection.post_receives(1 - side);
    posted |= connection.post_sends(side, now_);
    settle(connection.ends[side].host_number);
  };
  if (!datagram_ends_.empty() && random_.below(4) == 0)
    posted |= post_datagrams(random_.below(static_cast<std::uint32_t>(datagram_ends_.size())));
  if (!unreliable_ends_.empty() && unreliable_.chance(kUnreliablePosts))
    posted |= post_unreliable(unreliable_ends_[unreliable_.below(static_cast<std::uint32_t>(unreliable_ends_.size()))]);
  const bool idle = next_event().event == Event::kNone;
  if (!idle) {
    one(connections_[random_.below(static_cast<std::uint32_t>(connections_.size()))], random_.below(2));
    return posted;
  }
  constexpr int kAttempts = 64;  // the application is in no hurry
  for (int i = 0; i < kAttempts && !posted; ++i) {
    for (Connection& connection : connections_) {
      one(connection, 0);
      one(connection, 1);
    }
    for (std::size_t end = 0; end < datagram_ends_.size(); ++end) posted |= post_datagrams(end);
    for (UnreliableEnd& end : unreliable_ends_) posted |= post_unreliable(end);
  }
  return posted;
}

/// On its own, no fault: the work goes on afterwards as if nothing had been.
void Run::drain() {
  Connection& connection = connections_[later_.below(static_cast<std::uint32_t>(connections_.size()))];
  const std::size_t side = later_.below(2);
  if (connection.ends[side].ref.state != QpState::kRts) return;
  trace_.note(now_, connection.ends[side].host_number, "send queue drained");
  connection.drain(side, now_, later_);
  settle(connection.ends[side].host_number);
}

/// Windows are opened and closed among the work.
void Run::post_local() {
  Connection& connection = connections_[windows_.below(static_cast<std::uint32_t>(connections_.size()))];
  const std::size_t side = windows_.below(2);
  if (connection.post_local(side, now_)) settle(connection.ends[side].host_number);
}

void Run::disturb() {
  Connection& connection = connections_[random_.below(static_cast<std::uint32_t>(connections_.size()))];
  const std::size_t side = random_.below(2);
  End& end = connection.ends[side];
  const std::size_t host = end.host_number;
  const std::size_t peer = connection.ends[1 - side].host_number;
  const Ps until = now_ + (10 + random_.below(1'500)) * kMicrosecond;
  const auto fault = static_cast<Fault>(random_.below(static_cast<std::uint32_t>(Fault::kCount)));
  if (!scenario_.has(fault)) return;
  if (!datagram_ends_.empty() && random_.below(4) == 0) return disturb_datagrams(fault);
  switch (fault) {
    case Fault::kLinkDown:
      hits_(Point::kFaultLinkDown);
      trace_.note(now_, host, "link down");
      adversary_.cut_link(host, peer, until);
      return adversary_.cut_link(peer, host, until);
    case Fault::kOneWay:
      hits_(Point::kFaultOneWay);
      trace_.note(now_, host, "egress towards the peer down");
      return adversary_.cut_link(host, peer, until);
    case Fault::kPause:
      if (random_.below(2) == 0) {
        hits_(Point::kFaultPause);
        trace_.note(now_, host, "paused");
        hosts_[host].paused_until = until;
      } else {
        hits_(Point::kFaultBlock);
        trace_.note(now_, host, "path blocked");
        hosts_[host].engine.set_path_blocked(end.path, true);
        blocked_until_[host] = until;
      }
      return;
    case Fault::kRestart:
      if (connection.failed()) return;  // it may still be on its way up
      hits_(Point::kFaultRestart);
      trace_.note(now_, host, "restarted");
      connection.new_life();
      connection.recover_at = until;
      connection.join(side, now_);
      return settle(host);
    case Fault::kDeregister: {
      Direction& from = connection.directions[side];
      Direction& to = connection.directions[1 - side];
      Zone& zone = *std::array{&from.source, &from.landing, &to.target, &to.words}[random_.below(4)];
      if (zone.key == 0 || !connection.up()) return;
      if (end.host->registrations.held(zone.key)) {
        hits_(Point::kWindowHolds);
        require(!end.host->engine.memory().remove(zone.key), "a region stays while windows are bound to it");
        return;
      }
      hits_(Point::kFaultDeregister);
      trace_.note(now_, host, "region deregistered");
      end.host->withdraw(zone.key);
      zone.key = 0;
      return settle(host);
    }
    case Fault::kMemory:
      hits_(Point::kFaultMemory);
      trace_.note(now_, host, "memory gone");
      (random_.below(2) == 0 ? hosts_[host].memory.failing_loads : hosts_[host].memory.failing_stores) = 1;
      return;
    case Fault::kAbort:
      if (end.ref.state != QpState::kRts) return;
      trace_.note(now_, host, "queue pair set to ERR");
      connection.abort(side, now_);
      return settle(host);
    default:
      return;
  }
}

void Run::calm() {
  calm_ = true;
  adversary_.calm();
}

bool Run::finished() const noexcept {
  return std::all_of(connections_.begin(), connections_.end(), [](const Connection& c) { return c.finished(); }) &&
         std::all_of(datagram_ends_.begin(), datagram_ends_.end(), [](const DatagramEnd& e) { return e.finished(); }) &&
         std::all_of(unreliable_ends_.begin(), unreliable_ends_.end(),
                     [](const UnreliableEnd& e) { return e.finished(); });
}

/// Lets the rest happen, then looks at everything once more.
void Run::end() {
  calm();
  for (std::uint64_t events = 0;; ++events) {
    require(events < kMaxEvents, "an idle network comes to rest");
    for (Connection& connection : connections_) connection.recover_at = kNever;
    const Next next = next_event();
    if (next.event == Event::kNone) break;
    handle(next);
  }
  for (const SimHost& host : hosts_) {
    require(!host.engine.has_tx() && host.engine.next_deadline() == kNever, "an idle engine has nothing left to do");
    require(host.arena.intact(), "memory holds what the model says");
    require(scenario_.cq_entries != 0 || !host.cqs.front().queue.overrun(), "no completion is lost");
  }
  for (const Connection& connection : connections_)
    for (const Direction& direction : connection.directions) workspace_.requests += direction.next_operation;
}

std::string Run::story() const {
  std::string text =
      fmt::format("  at {} ns; {} hosts, {} connections, faults {:x}{}\n", now_ / kNanosecond, scenario_.hosts,
                  scenario_.connections, scenario_.faults, scenario_.whole ? ", whole messages" : "");
  for (const Connection& connection : connections_) text += connection.describe();
  for (const DatagramEnd& end : datagram_ends_) text += end.describe();
  for (const UnreliableEnd& end : unreliable_ends_) text += end.describe();
  return text + trace_.text();
}

}  // namespace tensorwire::transport::faults
