#include "softhca/local_channel.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "softhca/gpu/staged_memory.hpp"
#include "transport/placement.hpp"
#include "transport/queue_pair.hpp"

namespace tensorwire::softhca {
namespace {

UniqueFd owned(int fd) {
  if (fd < 0) throw system_error("make a same-host channel", errno, "Raise the limit of open files (ulimit -n)");
  return UniqueFd(fd);
}

UniqueFd make_eventfd() { return owned(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }
UniqueFd duplicate_of(const UniqueFd& fd) { return owned(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)); }

/// Waits until the peer has answered, hung up, or `bound` has passed. Returns true when it hung up.
bool wait_for_answer(const RingLayout& layout, const ChannelFds& fds, Ps bound) noexcept {
  const Ps deadline = monotonic_now() + bound;
  bool hung_up = false;
  while (layout.answer.load(std::memory_order_acquire) == static_cast<std::uint32_t>(RingAnswer::kNone) && !hung_up) {
    const Ps left = deadline - monotonic_now();
    if (left <= 0) return false;
    std::array<pollfd, 2> set{{{fds.wake_producer.get(), POLLIN, 0}, {fds.socket.get(), POLLRDHUP, 0}}};
    if (::poll(set.data(), set.size(), static_cast<int>(left / kMillisecond) + 1) < 0 && errno != EINTR) return false;
    hung_up = (set[1].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }
  return hung_up;
}

constexpr std::string_view kHungUp =
    "the peer process closed the connection (it asked for packets, or speaks another version)";

std::string why_no_connection(int error) {
  if (error == EPIPE || error == ECONNRESET) return std::string(kHungUp);
  if (error == EACCES) return "the HCA at the peer's address belongs to another user";
  if (error == ETIMEDOUT) return "the peer process does not accept connections in time";
  return "connecting to the peer process failed: " + errno_text(error);
}

}  // namespace

void wake(const UniqueFd& fd) noexcept {
  const std::uint64_t one = 1;
  // A full counter (EAGAIN) is readable already; nothing else can fail here that the caller could mend.
  [[maybe_unused]] const auto n = ::write(fd.get(), &one, sizeof one);
}

ChannelFds ChannelFds::make() { return {UniqueFd{}, make_eventfd(), make_eventfd()}; }

ChannelFds ChannelFds::duplicate() const {
  return {UniqueFd{}, duplicate_of(wake_consumer), duplicate_of(wake_producer)};
}

// ---- OutgoingChannel

OutgoingChannel::Made OutgoingChannel::offer(std::uint32_t peer_ipv4, std::uint8_t slot, const wire::Gid& own_address,
                                             const ProbeWord& probe, std::uint64_t withdrawals, Ps bound) {
  const int bound_ms = static_cast<int>(bound / kMillisecond);
  ConnectResult connection = connect_to_peer(peer_ipv4, slot, bound_ms);
  if (!connection.socket) {
    const bool nobody = connection.error == ECONNREFUSED;
    return {nullptr, nobody ? "the peer is not on this host" : why_no_connection(connection.error), !nobody};
  }
  RingMemory memory = RingMemory::create();
  ChannelFds fds = ChannelFds::make();
  fds.socket = std::move(connection.socket);
  const Greeting greeting{.sender = own_identity(),
                          .address = own_address,
                          .ring_slots = kRingSlots,
                          .slot_data_bytes = kSlotDataBytes,
                          .probe = probe,
                          .withdrawals = withdrawals};
  const int error =
      send_offer(fds.socket.get(), greeting, memory.fd(), fds.wake_consumer.get(), fds.wake_producer.get());
  if (error != 0) return {nullptr, why_no_connection(error), true};

  const bool hung_up = wait_for_answer(memory.layout(), fds, bound);
  switch (static_cast<RingAnswer>(memory.layout().answer.load(std::memory_order_acquire))) {
    case RingAnswer::kReady: {
      auto channel = std::make_unique<OutgoingChannel>(std::move(memory), std::move(fds));
      return {std::move(channel), {}, true};
    }
    case RingAnswer::kRefused:
      return {nullptr, std::string(text(static_cast<Refusal>(memory.layout().reason.load(std::memory_order_relaxed)))),
              true};
    default:
      return {nullptr,
              hung_up ? std::string(kHungUp) : fmt::format("the peer process did not answer within {} ms", bound_ms),
              true};
  }
}

bool OutgoingChannel::write_record(const transport::TxDesc& desc, std::uint32_t inline_bytes) noexcept {
  const RingSlot slot = ring_.next_slot();
  // Nobody acknowledges a READ response, so its source may change as soon as it left: it leaves as bytes.
  const bool response = wire::traits(desc.headers.opcode).response;
  if (!desc.inline_pieces && !response && desc.payload_bytes > inline_bytes) {
    encode_pulled(desc, slot);
    return true;
  }
  return transport::gather(desc, encode_inline(desc.headers, desc.payload_bytes, slot), nullptr);
}

void OutgoingChannel::send(transport::Engine& engine, std::span<const transport::TxDesc> descs,
                           std::uint32_t inline_bytes, Ps now, LocalLinkCounters& counters) noexcept {
  for (const transport::TxDesc& desc : descs) {
    if (!alive_ || !ring_.has_room(1)) {
      ++counters.tx_lost;
    } else if (write_record(desc, inline_bytes)) {
      ring_.publish();
      ++counters.tx_records;
    } else {
      engine.tx_failed(desc, now);
    }
  }
  if (ring_.must_wake_consumer()) {
    wake(fds_.wake_consumer);
    ++counters.wakeups;
  }
}

bool OutgoingChannel::has_room(std::uint32_t slots) noexcept {
  if (ring_.has_room(slots)) return true;
  if (ring_.corrupt()) kill();
  return !alive_;
}

// ---- IncomingChannel

IncomingChannel::IncomingChannel(RingMemory memory, ChannelFds fds, const PullSource& peer,
                                 const wire::Gid& peer_address) noexcept
    : ring_(std::move(memory)), fds_(std::move(fds)), peer_(peer) {
  source_.address = peer_address;
  source_.mtu = transport::kMaxMessageBytes;
}

std::size_t IncomingChannel::receive(transport::Engine& engine, Ps now, LocalLinkCounters& counters,
                                     ReceiveBudget budget, StagedMemory* staged) noexcept {
  staged_ = staged;
  std::size_t taken = 0;
  while (taken < budget.records && budget.pull_bytes != 0 && broken_.empty() && !ring_.empty()) {
    const Step step = take_record(engine, now, budget.pull_bytes, counters);
    if (step == Step::kUnfinished) break;
    decoded_ = false;
    pulled_ = 0;
    ring_.pop();
    ++taken;
  }
  counters.rx_records += taken;
  if (ring_.give_back()) {
    wake(fds_.wake_producer);
    ++counters.wakeups;
  }
  return taken;
}

IncomingChannel::Step IncomingChannel::take_record(transport::Engine& engine, Ps now, std::uint64_t& pull_budget,
                                                   LocalLinkCounters& counters) noexcept {
  if (!decoded_ && !decode(ring_.front(), record_)) {
    ++counters.malformed;
    broken_ = "it wrote a record that makes no sense";
    return Step::kDone;
  }
  decoded_ = true;
  // Asked again for each part of a long message: in between its region or its queue pair may have gone.
  const transport::RxVerdict verdict = engine.classify(record_.headers, record_.payload_bytes, source_, now);
  if (verdict.action == transport::RxAction::kDrop) return Step::kDone;
  if (verdict.action == transport::RxAction::kPlace) return place(engine, verdict, now, pull_budget, counters);
  commit(engine, verdict, now);
  return Step::kDone;
}

IncomingChannel::Step IncomingChannel::place(transport::Engine& engine, const transport::RxVerdict& verdict, Ps now,
                                             std::uint64_t& pull_budget, LocalLinkCounters& counters) noexcept {
  if (record_.pulled) {
    // Brought up anew with PSNs that fit by chance or by habit, a queue pair has not got what an earlier life pulled.
    if (verdict.qp->life() != life_) pulled_ = 0;
    life_ = verdict.qp->life();
    const std::uint64_t bytes = std::min(pull_budget, record_.payload_bytes - pulled_);
    const PullStatus status = pull_some(verdict, bytes);
    if (status == PullStatus::kWithdrawn) {
      ++counters.rx_withdrawn;
      return Step::kDone;
    }
    if (status == PullStatus::kPeerGone) {
      broken_ = "its memory cannot be read any more (its process ended, or the kernel's ptrace policy changed)";
      return Step::kDone;
    }
    if (status == PullStatus::kMemoryGone) {
      engine.reject(verdict, record_.headers, now);
      return Step::kDone;
    }
    pull_budget -= bytes;
    pulled_ += bytes;
    counters.rx_pulled_bytes += bytes;
    if (pulled_ != record_.payload_bytes) {
      engine.hold(verdict, record_.headers);
      return Step::kUnfinished;
    }
  } else {
    if (!place_inline(verdict)) {
      engine.reject(verdict, record_.headers, now);
      return Step::kDone;
    }
    counters.rx_inline_bytes += record_.payload_bytes;
  }
  commit(engine, verdict, now);
  return Step::kDone;
}

PullStatus IncomingChannel::pull_some(const transport::RxVerdict& verdict, std::uint64_t bytes) noexcept {
  const auto pieces = std::span(verdict.pieces).first(verdict.piece_count);
  const Standing standing{verdict.qp->attributes().dest_qpn, record_.withdrawals};
  if (staged_ != nullptr) staged_->placing(*verdict.qp);
  const auto status =
      pull(peer_, standing, std::span(record_.pieces).first(record_.piece_count), pieces, pulled_, bytes);
  if (staged_ != nullptr) staged_->placed();
  return status;
}

bool IncomingChannel::place_inline(const transport::RxVerdict& verdict) noexcept {
  if (staged_ != nullptr) staged_->placing(*verdict.qp);
  const bool placed = transport::place(verdict, record_.bytes, nullptr);
  if (staged_ != nullptr) staged_->placed();
  return placed;
}

void IncomingChannel::commit(transport::Engine& engine, const transport::RxVerdict& verdict, Ps now) noexcept {
  if (staged_ != nullptr && !staged_->landed(verdict, record_.headers)) {
    engine.reject(verdict, record_.headers, now);
  } else {
    engine.commit(verdict, record_.headers, record_.payload_bytes, now);
  }
}

}  // namespace tensorwire::softhca
