// The watcher's side of a hub: moving bytes, and what each frame or the end of a connection means.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "bootstrap/hub.hpp"
#include "bootstrap/names.hpp"

namespace tensorwire::bootstrap {

namespace {

constexpr std::size_t kReadChunk = 256U << 10;
/// Of what poll(2) looks at; before it are the eventfd and the door.
constexpr std::size_t kFirstOwned = 2;

}  // namespace

void Hub::watch() {
  std::vector<pollfd> entries;
  std::vector<Peer*> owners;
  for (;;) {
    Ps wake_at = kNever;
    {
      const Lock lock{mutex_};
      if (leaving_ && (!any_open() || monotonic_now() >= linger_until_)) break;
      list(entries, owners);
      wake_at = std::min(linger_until_, answer_due_);
    }
    const int timeout = wake_at == kNever ? -1 : poll_milliseconds(wake_at);
    if (poll(entries.data(), entries.size(), timeout) < 0) continue;

    const Lock lock{mutex_};
    if (entries[0].revents != 0) {
      std::uint64_t count = 0;
      (void)!read(wake_.fd(), &count, sizeof count);
    }
    for (std::size_t i = 0; i < owners.size(); ++i) {
      Peer& peer = *owners[i];
      const short ready = entries[i + kFirstOwned].revents;
      if (peer.open() && (ready & POLLOUT) != 0) flush(peer);
      if (peer.open() && (ready & (POLLIN | POLLHUP | POLLERR)) != 0) receive(peer);
    }
    std::erase_if(lines_, [](const Peer& line) { return !line.open(); });
    if (entries[1].revents != 0) accept_line();
    if (!leaving_ && monotonic_now() >= answer_due_) go_around_centre();
  }
  const Lock lock{mutex_};
  for (Peer& peer : peers_) peer.link.socket.reset();
  lines_.clear();
  door_.reset();
  changed_.notify_all();
}

void Hub::list(std::vector<pollfd>& entries, std::vector<Peer*>& owners) {
  // poll(2) skips the negative descriptor of a closed peer, and of a door that is not there.
  entries.assign(
      {{.fd = wake_.fd(), .events = POLLIN, .revents = 0}, {.fd = door_.fd(), .events = POLLIN, .revents = 0}});
  owners.clear();
  const auto add = [&](Peer& peer) {
    const bool has_more = !peer.outgoing.empty();
    entries.push_back({.fd = peer.link.socket.fd(),
                       .events = static_cast<short>(has_more ? POLLIN | POLLOUT : POLLIN),
                       .revents = 0});
    owners.push_back(&peer);
  };
  for (Peer& peer : peers_) add(peer);
  for (Peer& line : lines_) add(line);
}

bool Hub::any_open() const {
  return std::ranges::any_of(peers_, &Peer::open) || std::ranges::any_of(lines_, &Peer::open);
}

void Hub::receive(Peer& peer) {
  std::array<std::byte, kReadChunk> buffer;
  const IoResult io = read_some(peer.link.socket, buffer);
  if (io.status == IoStatus::kWouldBlock) return;
  if (io.status != IoStatus::kDone) return connection_ended(peer, io.error);
  if (is_centre(peer)) heard_from_centre();
  peer.link.reader.append(std::span{buffer}.first(io.bytes));
  while (peer.open()) {
    auto frame = peer.link.reader.next();
    if (!frame) break;
    handle(peer, *std::move(frame));
  }
  if (!peer.open() || !peer.link.reader.broken()) return;
  if (is_line(peer)) return peer.link.socket.reset();
  protocol_violation(peer);
}

void Hub::handle(Peer& peer, Frame frame) {
  if (frame.type == FrameType::kGoodbye) {
    goodbye_from(peer);
  } else if (is_line(peer)) {
    handle_on_line(peer, frame);
  } else if (serves()) {
    handle_on_server(peer, frame);
  } else {
    handle_on_client(peer, frame);
  }
}

void Hub::handle_on_server(Peer& peer, Frame& frame) {
  const int rank = peer.link.rank;
  if (frame.type == FrameType::kContribution) {
    if (auto contribution = parse_contribution(frame.body)) return contribute(rank, *std::move(contribution));
  } else if (frame.type == FrameType::kCancel) {
    if (const auto cancelled = parse_verdict(frame.body)) {
      const std::vector<int> missing = table_.missing(cancelled->sequence);
      // Nothing is missing: the result is already on its way to the one who asks.
      if (missing.empty()) return;
      return doom({cancelled->sequence, fmt::format("{} did not come within the {} of {}", rank_list(missing),
                                                    cancelled->text, name(rank))});
    }
  } else if (frame.type == FrameType::kAbort) {
    return declare_failed(
        {rank, hosts_[static_cast<std::size_t>(rank)], parse_text(frame.body), FailureKind::kGaveUp, -1});
  } else if (frame.type == FrameType::kAccuse) {
    if (auto news = parse_failure(frame.body); news && news->rank < hosts_.size()) {
      return declare_failed(
          {static_cast<int>(news->rank), hosts_[news->rank], std::move(news->reason), news->kind, rank});
    }
  } else if (frame.type == FrameType::kRollCall) {
    if (const auto question = parse_roll_call(frame.body)) {
      // Whoever asks hears from this rank, also when the others were asked a moment ago.
      return is_due(question->topic) ? ask_all(question->topic) : answer(peer, *question);
    }
  } else if (frame.type == FrameType::kReport) {
    if (auto report = parse_report(frame.body)) {
      report->rank = static_cast<std::uint32_t>(rank);
      return take_report(*std::move(report), &peer);
    }
  }
  protocol_violation(peer);
}

void Hub::handle_on_client(Peer& peer, Frame& frame) {
  if (frame.type == FrameType::kResult) {
    if (auto result = parse_result(frame.body, static_cast<std::uint32_t>(hosts_.size()))) {
      if (!is_past(result->sequence)) outcomes_[result->sequence].parts = std::move(result->payloads);
      return changed_.notify_all();
    }
  } else if (frame.type == FrameType::kDoomed) {
    if (const auto verdict = parse_verdict(frame.body)) {
      if (!is_past(verdict->sequence)) outcomes_[verdict->sequence].error = verdict->text;
      return changed_.notify_all();
    }
  } else if (frame.type == FrameType::kFailed) {
    if (auto news = parse_failure(frame.body)) {
      return declare_failed(
          {static_cast<int>(news->rank), std::move(news->host), std::move(news->reason), news->kind, news->told_by});
    }
  } else if (frame.type == FrameType::kRollCall) {
    if (const auto question = parse_roll_call(frame.body)) return answer(peer, *question);
  } else if (frame.type == FrameType::kReport) {
    if (auto report = parse_report(frame.body); report && report->rank < hosts_.size()) {
      return take_report(*std::move(report), &peer);
    }
  }
  protocol_violation(peer);
}

void Hub::connection_ended(Peer& peer, int error) {
  if (is_line(peer)) return line_ended(peer, error);
  peer.link.socket.reset();
  peer.outgoing.clear();
  changed_.notify_all();
  if (!peer.said_goodbye && !leaving_) died(peer.link.rank, error);
}

void Hub::died(int rank, int error) {
  declare_failed({rank, hosts_[static_cast<std::size_t>(rank)],
                  error == 0 || error == ECONNRESET ? "its process died (the connection ended without a goodbye)"
                                                    : "its connection broke: " + errno_text(error),
                  FailureKind::kDied, -1});
}

void Hub::goodbye_from(Peer& peer) {
  peer.said_goodbye = true;
  peer.outgoing.clear();
  peer.link.socket.reset();
  if (is_centre(peer)) {
    server_left_ = true;
  } else if (serves()) {
    for (const Verdict& verdict : table_.mark_left(peer.link.rank)) doom(verdict);
  }
  changed_.notify_all();
}

void Hub::protocol_violation(Peer& peer) {
  peer.link.socket.reset();
  peer.outgoing.clear();
  const int rank = peer.link.rank;
  declare_failed({rank, hosts_[static_cast<std::size_t>(rank)], "it sent what is not the bootstrap protocol",
                  FailureKind::kDied, -1});
}

void Hub::send(Peer& peer, const EncodedFrame& frame) {
  if (!peer.open()) return;
  peer.outgoing.push_back(frame);
  flush(peer);
  if (!peer.outgoing.empty()) wake_watcher();  // it waits for the socket to take more
}

void Hub::send_to_all(const EncodedFrame& frame, const Peer* except) {
  for (Peer& peer : peers_) {
    if (&peer != except) send(peer, frame);
  }
}

void Hub::flush(Peer& peer) {
  while (!peer.outgoing.empty()) {
    const std::span<const std::byte> rest = std::span{*peer.outgoing.front()}.subspan(peer.sent_of_first);
    const IoResult io = write_some(peer.link.socket, rest);
    // A broken connection shows at the next read, which tells its cause: nothing more can be sent until then.
    if (io.status == IoStatus::kError) peer.outgoing.clear();
    if (io.status != IoStatus::kDone) break;
    peer.sent_of_first += io.bytes;
    if (io.bytes < rest.size()) continue;
    peer.outgoing.pop_front();
    peer.sent_of_first = 0;
  }
  if (!peer.outgoing.empty()) return;
  peer.sent_of_first = 0;
  if (leaving_) shutdown(peer.link.socket.fd(), SHUT_WR);
  changed_.notify_all();
}

void Hub::wake_watcher() noexcept {
  const std::uint64_t one = 1;
  if (wake_) (void)!write(wake_.fd(), &one, sizeof one);
}

bool Hub::all_flushed() const {
  const auto flushed = [](const Peer& peer) { return !peer.open() || peer.outgoing.empty(); };
  return std::ranges::all_of(peers_, flushed) && std::ranges::all_of(lines_, flushed);
}

}  // namespace tensorwire::bootstrap
