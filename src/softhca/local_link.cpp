#include "softhca/local_link.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "softhca/gpu/staged_memory.hpp"
#include "softhca/local_channel.hpp"
#include "transport/withdrawals.hpp"

namespace tensorwire::softhca {
namespace {

/// How often a link that never sleeps looks for offers and hang-ups.
constexpr Ps kEventInterval = kMillisecond;
/// Bounds what peers can make us hold.
constexpr std::size_t kMaxIncoming = 1024;
constexpr std::size_t kMaxKnocking = 64;

}  // namespace

struct LocalLink::Impl {
  /// From which of our addresses to whom.
  struct Ends {
    wire::Gid local;
    ProcessAddress peer;
    bool operator==(const Ends&) const = default;
  };

  struct Outgoing {
    Ends ends;
    transport::PathId path = 0;
    bool blocked = false;
    std::unique_ptr<OutgoingChannel> channel;  ///< none any more when the peer is gone: what is sent then vanishes
  };

  /// A connection whose offer has not arrived yet.
  struct Knocking {
    UniqueFd socket;
    Ps deadline = 0;
  };

  Impl(LocalLink& link, LinkHost& link_host, const LocalLinkConfig& link_config)
      : self(link), host(link_host), config(link_config), events(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!events) throw system_error("start the same-host link", errno, "Raise the limit of open files (ulimit -n)");
    config.inline_bytes = std::clamp<std::uint32_t>(config.inline_bytes, transport::kMaxInlineBytes, kSlotDataBytes);
    *probe_word = entropy64();
    host.engine().count_withdrawals(withdrawals.get());
  }

  LocalLink& self;
  LinkHost& host;
  LocalLinkConfig config;
  const HostIdentity identity = own_identity();
  /// Its address is in our greetings, its value comes back with every pull from our memory.
  const std::unique_ptr<std::uint64_t> probe_word = std::make_unique<std::uint64_t>();
  const std::unique_ptr<transport::Withdrawals> withdrawals = std::make_unique<transport::Withdrawals>();
  UniqueFd events;  ///< edge-triggered, so that eventfds need not be read
  std::vector<std::unique_ptr<Outgoing>> outgoing;
  std::vector<Outgoing*> by_path;  ///< path ids are dense
  std::vector<std::unique_ptr<IncomingChannel>> incoming;
  std::vector<Knocking> knocking;
  std::size_t first = 0;  ///< whose turn it is among `incoming`
  bool sleeping = false;  ///< peers are asked to wake us
  bool events_due = true;
  Ps next_events = 0;
  LocalLinkCounters counters;
  StagedMemory* staged = nullptr;  ///< null while no memory of a GPU is registered

  // ---- set-up
  [[nodiscard]] ProbeWord probe() const noexcept {
    return {reinterpret_cast<std::uint64_t>(probe_word.get()), *probe_word};
  }
  [[nodiscard]] std::uint64_t withdrawals_address() const noexcept {
    return reinterpret_cast<std::uint64_t>(withdrawals.get());
  }
  [[nodiscard]] Outgoing* find(const Ends& ends) const noexcept;
  transport::PathId attach(const Ends& ends, std::unique_ptr<OutgoingChannel> channel);
  [[nodiscard]] std::unique_ptr<OutgoingChannel> connect_to_self(const wire::Gid& local);
  // False when the system refuses, which for a descriptor of our own means that it is out of resources.
  [[nodiscard]] bool watch_socket(const UniqueFd& fd) const { return watch(fd, EPOLLIN | EPOLLRDHUP, kSocket); }
  [[nodiscard]] bool watch_eventfd(const UniqueFd& fd) const { return watch(fd, EPOLLIN, kEventfd); }

  // ---- peers that come and go
  void handle_events(Ps now);
  void hear(Ps now);
  void answer(UniqueFd socket, Offer offer);
  void find_hang_ups();
  void drop_finished() noexcept;

  // ---- egress
  void block(Outgoing& outgoing) noexcept;
  void unblock_where_room() noexcept;

 private:
  enum Watched : std::uint32_t { kEventfd, kSocket };
  [[nodiscard]] bool watch(const UniqueFd& fd, std::uint32_t what, Watched kind) const noexcept;
};

// ---- set-up

LocalLink::LocalLink(LinkHost& host, const LocalLinkConfig& config)
    : impl_(std::make_unique<Impl>(*this, host, config)) {
  host.watch(impl_->events.get());
}

LocalLink::~LocalLink() {
  impl_->host.engine().count_withdrawals(nullptr);
  impl_->host.unwatch(impl_->events.get());
}

PathChoice LocalLink::path_to(const wire::Gid& local, const ProcessAddress& peer, std::uint32_t peer_ipv4) {
  Impl& s = *impl_;
  const Impl::Ends ends{local, peer};
  const bool is_self = peer_ipv4 == s.host.address().ipv4 && peer.slot == s.host.address().slot;
  PathChoice choice;
  s.host.run_locked([&] {
    if (const auto* known = s.find(ends))
      choice.path = known->path;
    else if (is_self)
      choice.path = s.attach(ends, s.connect_to_self(local));
  });
  if (choice.path) return choice;

  auto made =
      OutgoingChannel::offer(peer_ipv4, peer.slot, local, s.probe(), s.withdrawals_address(), s.config.handshake_bound);
  if (!made.channel) {
    if (made.peer_on_host) {
      log_warn(fmt::format("same-host link to {} is not used: {}; RoCEv2 packets instead", address_text(peer.gid),
                           made.why_not));
    }
    choice.why_not = std::move(made.why_not);
    return choice;
  }
  s.host.run_locked([&] {
    // Another thread may have been faster; then the peer sees this channel close.
    const auto* known = s.find(ends);
    choice.path = known != nullptr ? known->path : s.attach(ends, std::move(made.channel));
  });
  return choice;
}

LocalLink::Impl::Outgoing* LocalLink::Impl::find(const Ends& ends) const noexcept {
  for (const auto& o : outgoing) {
    if (o->ends == ends && o->channel) return o.get();
  }
  return nullptr;
}

transport::PathId LocalLink::Impl::attach(const Ends& ends, std::unique_ptr<OutgoingChannel> channel) {
  const ChannelFds& fds = channel->fds();
  if ((fds.socket && !watch_socket(fds.socket)) || !watch_eventfd(fds.wake_producer)) {
    throw system_error("watch a same-host channel", errno);
  }
  auto made = std::make_unique<Outgoing>();
  made->ends = ends;
  made->channel = std::move(channel);
  made->path = host.engine().create_path({.window_bytes = config.window_bytes, .whole_messages = true});
  if (by_path.size() <= made->path) by_path.resize(made->path + 1);
  by_path[made->path] = made.get();
  outgoing.push_back(std::move(made));
  host.bind_path(outgoing.back()->path, self);
  return outgoing.back()->path;
}

/// No handshake: both ends are ours, and nobody else could answer.
std::unique_ptr<OutgoingChannel> LocalLink::Impl::connect_to_self(const wire::Gid& local) {
  const RingMemory memory = RingMemory::create();
  ChannelFds producer = ChannelFds::make();
  ChannelFds consumer = producer.duplicate();
  if (!watch_eventfd(consumer.wake_consumer)) throw system_error("watch a same-host channel", errno);
  const PullSource source{
      .pid = identity.pid, .same_process = true, .probe = probe(), .withdrawals = withdrawals_address()};
  incoming.push_back(std::make_unique<IncomingChannel>(memory, std::move(consumer), source, local));
  // The engine thread may be asleep already, and has not asked this channel to wake it.
  if (sleeping) std::ignore = incoming.back()->ring().prepare_sleep();
  return std::make_unique<OutgoingChannel>(memory, std::move(producer));
}

bool LocalLink::Impl::watch(const UniqueFd& fd, std::uint32_t what, Watched kind) const noexcept {
  epoll_event event{};
  event.events = what | EPOLLET;
  event.data.u32 = kind;
  return ::epoll_ctl(events.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0;
}

// ---- peers that come and go

void LocalLink::adopt(UniqueFd connection) {
  Impl& s = *impl_;
  // Closed where we cannot take it: the peer then takes packets.
  if (s.knocking.size() == kMaxKnocking || !s.watch_socket(connection)) return;
  // The deadline is set by the next pass, which knows the time.
  s.knocking.push_back({std::move(connection), kNever});
  s.events_due = true;
}

void LocalLink::close_sockets() noexcept {
  Impl& s = *impl_;
  s.knocking.clear();
  for (const auto& channel : s.incoming) channel->close_descriptors();
  for (const auto& o : s.outgoing) {
    if (o->channel) o->channel->close_descriptors();
  }
}

void LocalLink::Impl::handle_events(Ps now) {
  events_due = false;
  next_events = now + kEventInterval;
  std::array<epoll_event, 32> found;
  bool sockets = !knocking.empty();
  int n = 0;
  do {
    n = ::epoll_wait(events.get(), found.data(), static_cast<int>(found.size()), 0);
    for (int i = 0; i < n; ++i) sockets = sockets || found[i].data.u32 == kSocket;
  } while (n == static_cast<int>(found.size()));
  if (!sockets) return;
  hear(now);
  find_hang_ups();
}

void LocalLink::Impl::hear(Ps now) {
  std::vector<Knocking> still_silent;
  for (Knocking& k : std::exchange(knocking, {})) {
    if (k.deadline == kNever) k.deadline = now + config.handshake_bound;
    Offer offer;
    switch (receive_offer(k.socket.get(), offer)) {
      case OfferStatus::kOk:
        answer(std::move(k.socket), std::move(offer));
        break;
      case OfferStatus::kNotYet:
        if (k.deadline > now) still_silent.push_back(std::move(k));
        break;
      case OfferStatus::kMalformed:
        ++counters.malformed;
        break;
      case OfferStatus::kClosed:
        break;
    }
  }
  knocking = std::move(still_silent);
}

void LocalLink::Impl::answer(UniqueFd socket, Offer offer) {
  const wire::Gid peer = offer.greeting.address;
  auto memory = RingMemory::adopt(std::move(offer.memory));
  if (!memory || !watch_eventfd(offer.wake_consumer)) {
    ++counters.malformed;
    return;
  }
  Refusal refusal = check_offer(offer, identity);
  if (refusal == Refusal::kNone && incoming.size() == kMaxIncoming) refusal = Refusal::kTooManyChannels;

  RingLayout& layout = memory->layout();
  const UniqueFd& wake_sender = offer.wake_producer;
  if (refusal != Refusal::kNone) {
    ++counters.refused;
    log_info(fmt::format("same-host link from process {} is refused: {}", offer.pid, text(refusal)));
    layout.reason.store(static_cast<std::uint32_t>(refusal), std::memory_order_relaxed);
    layout.answer.store(static_cast<std::uint32_t>(RingAnswer::kRefused), std::memory_order_release);
    wake(wake_sender);
    return;
  }
  ++counters.accepted;
  const PullSource source{.pid = offer.pid,
                          .same_process = offer.pid == identity.pid,
                          .probe = offer.greeting.probe,
                          .withdrawals = offer.greeting.withdrawals};
  layout.answer.store(static_cast<std::uint32_t>(RingAnswer::kReady), std::memory_order_release);
  wake(wake_sender);
  incoming.push_back(std::make_unique<IncomingChannel>(
      std::move(*memory), ChannelFds{std::move(socket), std::move(offer.wake_consumer), std::move(offer.wake_producer)},
      source, peer));
}

/// Asks all sockets anew rather than trusting that an event's descriptor number still means the same channel.
void LocalLink::Impl::find_hang_ups() {
  const auto gone = [](const ChannelFds& fds) {
    pollfd p{fds.socket.get(), POLLRDHUP, 0};  // a negative descriptor, of the channel to ourselves, is never ready
    return ::poll(&p, 1, 0) > 0;
  };
  for (const auto& channel : incoming) {
    if (gone(channel->fds())) channel->hang_up();
  }
  for (const auto& o : outgoing) {
    if (o->channel && gone(o->channel->fds())) o->channel.reset();
  }
}

void LocalLink::Impl::drop_finished() noexcept {
  counters.closed += std::erase_if(incoming, [](const auto& channel) {
    if (!channel->why_broken().empty()) {
      log_warn(fmt::format("same-host link from {} is closed: {}; what it sends there ends in retry errors",
                           address_text(channel->peer_address()), channel->why_broken()));
    }
    return channel->finished();
  });
}

// ---- egress

void LocalLink::transmit(std::span<const transport::TxDesc> descs, Ps now) noexcept {
  Impl& s = *impl_;
  Impl::Outgoing& o = *s.by_path[descs.front().path];
  if (!o.channel) {
    s.counters.tx_lost += descs.size();
    return;
  }
  if (s.staged != nullptr) s.staged->fetch(descs);
  o.channel->send(s.host.engine(), descs, s.config.inline_bytes, now, s.counters);
  if (s.staged != nullptr) s.staged->fetched();
  if (!o.channel->has_room(kMaxTxBatch)) s.block(o);
}

void LocalLink::Impl::block(Outgoing& o) noexcept {
  // Nobody may be awake to see that the peer has made room; then the peer has to tell.
  if (sleeping && !o.channel->ring().prepare_sleep(kMaxTxBatch)) return;
  o.blocked = true;
  host.engine().set_path_blocked(o.path, true);
}

void LocalLink::Impl::unblock_where_room() noexcept {
  for (const auto& o : outgoing) {
    if (o->channel && !o->channel->alive()) o->channel.reset();
    if (!o->blocked || (o->channel && !o->channel->has_room(kMaxTxBatch))) continue;
    o->blocked = false;
    host.engine().set_path_blocked(o->path, false);
  }
}

// ---- ingress

std::size_t LocalLink::receive(Ps now, bool& more) noexcept {
  Impl& s = *impl_;
  if (s.events_due || now >= s.next_events) s.handle_events(now);
  s.unblock_where_room();
  std::size_t taken = 0;
  bool finished = false;
  const std::size_t channels = s.incoming.size();
  for (std::size_t i = 0; i < channels; ++i) {
    IncomingChannel& channel = *s.incoming[(s.first + i) % channels];
    taken += channel.receive(s.host.engine(), now, s.counters, {}, s.staged);
    more = more || !channel.ring().empty();
    finished = finished || channel.finished();
  }
  ++s.first;
  if (finished) s.drop_finished();
  return taken;
}

void LocalLink::use(StagedMemory& staged) noexcept { impl_->staged = &staged; }

// ---- sleeping

bool LocalLink::prepare_sleep() noexcept {
  Impl& s = *impl_;
  s.sleeping = true;
  bool quiet = !s.events_due;
  for (const auto& channel : s.incoming) quiet = quiet && channel->ring().prepare_sleep();
  for (const auto& o : s.outgoing) {
    if (o->blocked) quiet = quiet && o->channel && o->channel->ring().prepare_sleep(kMaxTxBatch);
  }
  if (!quiet) end_sleep();
  return quiet;
}

void LocalLink::end_sleep() noexcept {
  Impl& s = *impl_;
  if (!s.sleeping) return;
  s.sleeping = false;
  s.events_due = true;
  for (const auto& channel : s.incoming) channel->ring().end_sleep();
  for (const auto& o : s.outgoing) {
    if (o->channel) o->channel->ring().end_sleep();
  }
}

// ---- counters

const LocalLinkCounters& LocalLink::counters() const noexcept { return impl_->counters; }

void LocalLink::visit_counters(const CounterSink& sink) const {
  const LocalLinkCounters& c = impl_->counters;
  sink("local_tx_records", c.tx_records);
  sink("local_rx_records", c.rx_records);
  sink("local_rx_inline_bytes", c.rx_inline_bytes);
  sink("local_rx_pulled_bytes", c.rx_pulled_bytes);
  sink("local_rx_withdrawn", c.rx_withdrawn);
  sink("local_tx_lost", c.tx_lost);
  sink("local_malformed", c.malformed);
  sink("local_wakeups", c.wakeups);
  sink("local_channels_accepted", c.accepted);
  sink("local_channels_refused", c.refused);
  sink("local_channels_closed", c.closed);
}

}  // namespace tensorwire::softhca
