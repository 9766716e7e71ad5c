#include "transport/scheduler.hpp"

#include <algorithm>

#include "transport/qp.hpp"

namespace tensorwire::transport {

PathId Scheduler::add_path(const PathConfig& config) {
  paths_.push_back(std::make_unique<Path>(config));
  paths_.back()->config.window_bytes = std::min(config.window_bytes, kMaxWindowBytes);
  return static_cast<PathId>(paths_.size() - 1);
}

void Scheduler::set_window(PathId path, std::uint64_t bytes) noexcept {
  paths_[path]->config.window_bytes = std::min(bytes, kMaxWindowBytes);
  release(path, 0);
}

void Scheduler::set_blocked(PathId path, bool blocked) noexcept {
  paths_[path]->blocked = blocked;
  refresh(*paths_[path]);
}

void Scheduler::control_ready(Qp& qp) noexcept {
  Path& path = *paths_[qp.path()];
  path.control.push_back(qp);
  refresh(path);
}

void Scheduler::cnp_ready(Qp& qp) noexcept {
  if (cnps_ == nullptr) return control_ready(qp);
  cnps_->cnps.push_back(qp);
  refresh(*cnps_);
}

void Scheduler::reply_ready(Qp& qp) noexcept {
  Path& path = *paths_[qp.path()];
  path.replies.push_back(qp);
  refresh(path);
}

void Scheduler::replies_done(Qp& qp) noexcept {
  Path& path = *paths_[qp.path()];
  if (path.replies.front() == &qp) path.reply_turn_left = kTurnBytes;
  path.replies.remove(qp);
  refresh(path);
}

void Scheduler::data_ready(Qp& qp) noexcept {
  Path& path = *paths_[qp.path()];
  (qp.unanswered ? path.unanswered : path.data).push_back(qp);
  refresh(path);
}

void Scheduler::data_done(Qp& qp) noexcept {
  Path& path = *paths_[qp.path()];
  if (path.data.front() == &qp) path.turn_left = kTurnBytes;
  if (path.unanswered.front() == &qp) path.unanswered_turn_left = kTurnBytes;
  (qp.unanswered ? path.unanswered : path.data).remove(qp);
  refresh(path);
}

void Scheduler::remove(Qp& qp) noexcept {
  data_done(qp);
  given_.remove(qp);
  replies_done(qp);
  paths_[qp.path()]->control.remove(qp);
  refresh(*paths_[qp.path()]);
  if (cnps_ == nullptr) return;
  cnps_->cnps.remove(qp);
  refresh(*cnps_);
}

void Scheduler::given_out(Qp& qp) noexcept { given_.push_back(qp); }

void Scheduler::complete_given() noexcept {
  while (QpLinks* links = given_.front()) {
    given_.remove(*links);
    static_cast<Qp&>(*links).unanswered->complete_given();
  }
}

void Scheduler::release(PathId path, std::uint64_t bytes) noexcept {
  paths_[path]->in_flight -= bytes;
  paths_[path]->window_full = false;
  refresh(*paths_[path]);
}

void Scheduler::refresh(Path& path) noexcept {
  const bool data = !path.data.empty() && !path.window_full;
  const bool others = !path.replies.empty() || !path.unanswered.empty();
  if (!path.blocked && (data || path.has_control() || others)) {
    active_.push_back(path);
  } else {
    active_.remove(path);
  }
}

std::size_t Scheduler::fill(Ps now, std::uint64_t budget_bytes, std::span<TxDesc> out) noexcept {
  complete_given();
  std::size_t count = 0;
  while (count == 0 && !out.empty()) {
    Path* path = active_.front();
    if (path == nullptr) break;
    // Control packets go last, with a place kept for one: the peer waits for what is asked or answered, and for its
    // acknowledgements only when its window is full.
    const std::span<TxDesc> first = !path->has_control() ? out : out.first(out.size() - 1);
    path->replies_first = !path->replies_first;
    if (path->replies_first) count = fill_replies(*path, now, budget_bytes, first, count);
    path->unanswered_first = !path->unanswered_first && !path->unanswered.empty();
    if (path->unanswered_first) count = fill_unanswered(*path, now, budget_bytes, first, count);
    count = fill_data(*path, now, budget_bytes, first, count);
    if (!path->unanswered.empty()) count = fill_unanswered(*path, now, budget_bytes, first, count);
    if (!path->replies_first) count = fill_replies(*path, now, budget_bytes, first, count);
    count = fill_control(*path, out, count);
    refresh(*path);
    if (path->active.linked) active_.move_to_back(*path);
  }
  return count;
}

/// One rate for all that a queue pair sends: a reply holds back requests, and the other way round.
void Scheduler::pace(Qp& qp, std::uint32_t payload_bytes, Ps now) noexcept {
  qp.pace(payload_bytes, now);
  if (!qp.paced()) return;
  data_done(qp);
  replies_done(qp);
}

std::size_t Scheduler::fill_control(Path& path, std::span<TxDesc> out, std::size_t count) noexcept {
  while (count < out.size() && !path.cnps.empty()) {
    Qp& qp = static_cast<Qp&>(*path.cnps.front());
    path.cnps.remove(qp);
    if (qp.congestion->owes_cnp()) qp.build_cnp(out[count++]);
  }
  while (count < out.size() && !path.control.empty()) {
    Qp& qp = static_cast<Qp&>(*path.control.front());
    path.control.remove(qp);
    if (qp.congestion != nullptr && qp.congestion->owes_cnp()) {
      qp.build_cnp(out[count++]);
      if (qp.responder.owes_control()) path.control.push_back(qp);
    } else if (qp.responder.owes_control()) {
      qp.responder.build_control(out[count++]);
    }
  }
  return count;
}

std::size_t Scheduler::fill_replies(Path& path, Ps now, std::uint64_t& budget_bytes, std::span<TxDesc> out,
                                    std::size_t count) noexcept {
  while (count < out.size() && !path.replies.empty()) {
    Qp& qp = static_cast<Qp&>(*path.replies.front());
    const std::uint32_t bytes = qp.responder.next_reply_payload();
    if (bytes > budget_bytes && count != 0) break;
    if (!qp.responder.build_reply(out[count])) continue;  // a NAK took its place
    if (qp.congestion != nullptr) pace(qp, bytes, now);
    ++count;
    budget_bytes -= std::min<std::uint64_t>(bytes, budget_bytes);
    path.reply_turn_left -= std::min<std::uint64_t>(bytes, path.reply_turn_left);
    if (path.reply_turn_left == 0 && path.replies.front() == &qp) {
      path.replies.move_to_back(qp);
      path.reply_turn_left = kTurnBytes;
    }
  }
  return count;
}

std::size_t Scheduler::fill_data(Path& path, Ps now, std::uint64_t& budget_bytes, std::span<TxDesc> out,
                                 std::size_t count) noexcept {
  while (count < out.size() && !path.data.empty()) {
    Qp& qp = static_cast<Qp&>(*path.data.front());
    const std::uint32_t bytes = qp.requester.next_payload();
    if (bytes > budget_bytes && count != 0) break;
    const std::uint64_t charge = bytes != 0 ? packet_charge(bytes) : qp.requester.next_charge();
    if (!path.fits(charge)) {
      path.window_full = true;
      break;
    }
    if (!qp.requester.build(out[count], now)) continue;  // it has told whether it stays on the list
    if (qp.congestion != nullptr) pace(qp, bytes, now);
    ++count;
    budget_bytes -= std::min<std::uint64_t>(bytes, budget_bytes);
    path.turn_left -= std::min(charge, path.turn_left);
    if (!qp.requester.ready()) {
      data_done(qp);
    } else if (path.turn_left == 0) {
      path.data.move_to_back(qp);
      path.turn_left = kTurnBytes;
    }
  }
  return count;
}

std::size_t Scheduler::fill_unanswered(Path& path, Ps now, std::uint64_t& budget_bytes, std::span<TxDesc> out,
                                       std::size_t count) noexcept {
  while (count < out.size() && !path.unanswered.empty()) {
    Qp& qp = static_cast<Qp&>(*path.unanswered.front());
    const std::uint32_t bytes = qp.unanswered->next_payload();
    if (bytes > budget_bytes && count != 0) break;
    if (!qp.unanswered->build(out[count])) continue;  // it has told whether it stays on the list
    if (qp.congestion != nullptr) pace(qp, bytes, now);
    ++count;
    budget_bytes -= std::min<std::uint64_t>(bytes, budget_bytes);
    path.unanswered_turn_left -= std::min(packet_charge(bytes), path.unanswered_turn_left);
    if (!qp.unanswered->ready()) {
      data_done(qp);
    } else if (path.unanswered_turn_left == 0) {
      path.unanswered.move_to_back(qp);
      path.unanswered_turn_left = kTurnBytes;
    }
  }
  return count;
}

}  // namespace tensorwire::transport
