// Direct lines: how the ranks go on talking when rank 0, by which all news goes, is silent (its process is stopped, its
// host cut off, or it is dead). Whoever has said something to rank 0 and hears nothing from it for a moment says it
// again to all others, over a connection to the door that each of them opened when they met. A question is answered on
// the line that it came by. That rank 0 only was slow does no harm: everybody then hears the same thing twice.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "bootstrap/hub.hpp"

namespace tensorwire::bootstrap {

namespace {

/// A report, or why a rank gave up.
constexpr std::size_t kMaxLineBody = kMaxReport + 2 * kMaxText;

}  // namespace

void Hub::expect_answer(Ps patience) {
  if (!peers_.front().open()) patience = 0;
  answer_due_ = std::min(answer_due_, monotonic_now() + patience);
  wake_watcher();
}

void Hub::heard_from_centre() {
  answer_due_ = kNever;
  centre_is_silent_ = false;
  changed_.notify_all();
}

void Hub::go_around_centre() {
  answer_due_ = kNever;
  centre_is_silent_ = true;
  open_lines();
  for (const auto& [topic, known] : topics_) {
    if (known.asked != 0) tell_by_lines(encode_frame(FrameType::kRollCall, encode(RollCall{topic})));
  }
  if (own_news_) tell_by_lines(encode_frame(FrameType::kFailed, encode(*own_news_)));
  changed_.notify_all();
}

void Hub::open_lines() {
  for (std::size_t rank = 1; rank < doors_.size(); ++rank) {
    const auto leads_there = [&](const Peer& line) { return line.link.rank == static_cast<int>(rank); };
    if (static_cast<int>(rank) == rank_ || doors_[rank].length() == 0) continue;
    if (std::ranges::any_of(lines_, leads_there)) continue;
    int error = 0;
    Socket socket = start_to_connect(doors_[rank], error);
    if (!socket) continue;
    Peer& line = lines_.emplace_back(Link{static_cast<int>(rank), std::move(socket), FrameReader{kMaxLineBody}});
    Caller caller{static_cast<std::uint32_t>(rank_), static_cast<std::uint32_t>(rank), {}};
    caller.proof = prove(line_secret_, proof_message(caller));
    send(line, encode_frame(FrameType::kCaller, encode(caller)));
  }
}

void Hub::accept_line() {
  std::string from;
  Socket socket = accept_from(door_, from);
  if (!socket) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    log_warn("direct lines between ranks end here: " + errno_text(errno));
    return door_.reset();
  }
  // A crowd of silent connections must not keep the ranks out: the oldest goes.
  const auto is_stranger = [](const Peer& line) { return line.link.rank == kStranger; };
  if (std::ranges::count_if(lines_, is_stranger) >= static_cast<std::ptrdiff_t>(kMaxStrangers)) {
    lines_.erase(std::ranges::find_if(lines_, is_stranger));
  }
  lines_.emplace_back(Link{kStranger, std::move(socket), FrameReader{kMaxHandshakeBody}});
}

void Hub::tell_by_lines(const EncodedFrame& frame) {
  for (Peer& line : lines_) {
    if (line.link.rank != kStranger) send(line, frame);
  }
}

void Hub::handle_on_line(Peer& line, Frame& frame) {
  if (line.link.rank == kStranger) {
    const auto caller = frame.type == FrameType::kCaller ? parse_caller(frame.body) : std::nullopt;
    const bool proved = caller && caller->from < hosts_.size() && caller->to == static_cast<std::uint32_t>(rank_) &&
                        same_proof(prove(line_secret_, proof_message(*caller)), caller->proof);
    if (!proved) return line.link.socket.reset();
    line.link.rank = static_cast<int>(caller->from);
    line.link.reader.set_max_body(kMaxLineBody);
    return;
  }
  line.heard = true;
  if (frame.type == FrameType::kRollCall) {
    if (const auto question = parse_roll_call(frame.body)) return answer(line, *question);
  } else if (frame.type == FrameType::kReport) {
    if (auto report = parse_report(frame.body)) {
      report->rank = static_cast<std::uint32_t>(line.link.rank);
      return take_report(*std::move(report), nullptr);
    }
  } else if (frame.type == FrameType::kFailed) {
    if (auto news = parse_failure(frame.body); news && news->rank < hosts_.size()) {
      return declare_failed(
          {static_cast<int>(news->rank), hosts_[news->rank], std::move(news->reason), news->kind, news->told_by});
    }
  }
  line.link.socket.reset();
}

void Hub::line_ended(Peer& line, int error) {
  line.link.socket.reset();
  line.outgoing.clear();
  changed_.notify_all();
  // One that never spoke was not there: it refused, or cannot be reached.
  if (line.heard && !leaving_) died(line.link.rank, error);
}

}  // namespace tensorwire::bootstrap
