// Who may send next. Queue pairs with something to send stand in their path's lists (replies, data and what nothing
// answers in turns, then control), paths with a queue pair that may send stand in the active list; all are served
// round-robin. The scheduler also keeps each path's unacknowledged bytes under its limit. It decides; requesters and
// responders build the packets.
//
// Replies (READ responses, atomic acknowledges) need no window: nobody acknowledges them, and who asked for them
// counted them into his own. If they did, two peers that read from each other could wait for each other for ever. Nor
// do messages that nothing answers (UC, UD), which no acknowledgement would take out of a window again.
//
// Invariant: a path is in the active list exactly when it is not blocked and has a control packet, a CNP, a reply, an
// unanswered message, or data that its window was not yet found too small for. So has_tx() costs two comparisons.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/engine.hpp"
#include "transport/intrusive_list.hpp"
#include "transport/qp_links.hpp"

namespace tensorwire::transport {

struct Qp;

/// Window bytes that a packet occupies: receivers pay for small packets, too.
inline constexpr std::uint64_t kMinPacketCharge = 512;
[[nodiscard]] constexpr std::uint64_t packet_charge(std::uint32_t payload_bytes) noexcept {
  return payload_bytes > kMinPacketCharge ? payload_bytes : kMinPacketCharge;
}
/// Windows are cut to this, which also keeps outstanding PSNs far below half of their circle.
inline constexpr std::uint64_t kMaxWindowBytes = 1ULL << 31;
/// A queue pair sends this much before the next one of its path has its turn: a GSO batch wants neighbours.
inline constexpr std::uint64_t kTurnBytes = 256 * 1024;

struct Path {
  explicit Path(const PathConfig& path_config) : config(path_config) {}

  PathConfig config;
  bool blocked = false;
  bool window_full = false;  ///< the next packet was found not to fit; cleared when bytes are released
  std::uint64_t in_flight = 0;
  bool replies_first = false;     ///< of replies and the others, who has the next batch
  bool unanswered_first = false;  ///< of data and unanswered messages, likewise
  std::uint64_t turn_left = kTurnBytes;
  std::uint64_t unanswered_turn_left = kTurnBytes;
  std::uint64_t reply_turn_left = kTurnBytes;
  IntrusiveList<QpLinks, &QpLinks::control> control;
  IntrusiveList<QpLinks, &QpLinks::cnp> cnps;  ///< of queue pairs of all paths
  IntrusiveList<QpLinks, &QpLinks::replies> replies;
  IntrusiveList<QpLinks, &QpLinks::data> data;
  IntrusiveList<QpLinks, &QpLinks::data> unanswered;
  ListLink<Path> active;

  [[nodiscard]] bool has_control() const noexcept { return !control.empty() || !cnps.empty(); }
  /// One packet always passes, however small the window.
  [[nodiscard]] bool fits(std::uint64_t charge) const noexcept {
    return in_flight == 0 || in_flight + charge <= config.window_bytes;
  }
};

class Scheduler {
 public:
  /// Set-up path.
  PathId add_path(const PathConfig& config);
  [[nodiscard]] bool has_path(PathId path) const noexcept { return path < paths_.size(); }
  [[nodiscard]] const Path& path(PathId path) const noexcept { return *paths_[path]; }
  void set_window(PathId path, std::uint64_t bytes) noexcept;
  void set_blocked(PathId path, bool blocked) noexcept;
  void set_cnp_path(PathId path) noexcept { cnps_ = paths_[path].get(); }

  /// The queue pair owes a control packet / has a reply or a data packet that it may send. Idempotent.
  void control_ready(Qp& qp) noexcept;
  void cnp_ready(Qp& qp) noexcept;
  void reply_ready(Qp& qp) noexcept;
  void data_ready(Qp& qp) noexcept;
  /// Idempotent.
  void replies_done(Qp& qp) noexcept;
  void data_done(Qp& qp) noexcept;
  void remove(Qp& qp) noexcept;
  /// An unanswered message of it is with the link: the next fill() says that the link is done with that. Idempotent.
  void given_out(Qp& qp) noexcept;

  void charge(PathId path, std::uint64_t bytes) noexcept { paths_[path]->in_flight += bytes; }
  void release(PathId path, std::uint64_t bytes) noexcept;

  [[nodiscard]] bool has_tx() const noexcept { return !active_.empty() || !given_.empty(); }
  /// Engine::next_tx().
  std::size_t fill(Ps now, std::uint64_t budget_bytes, std::span<TxDesc> out) noexcept;

 private:
  void refresh(Path& path) noexcept;
  void complete_given() noexcept;
  void pace(Qp& qp, std::uint32_t payload_bytes, Ps now) noexcept;
  /// These add descriptors from `count` on and return the new count.
  std::size_t fill_replies(Path& path, Ps now, std::uint64_t& budget_bytes, std::span<TxDesc> out,
                           std::size_t count) noexcept;
  std::size_t fill_data(Path& path, Ps now, std::uint64_t& budget_bytes, std::span<TxDesc> out,
                        std::size_t count) noexcept;
  std::size_t fill_unanswered(Path& path, Ps now, std::uint64_t& budget_bytes, std::span<TxDesc> out,
                              std::size_t count) noexcept;
  static std::size_t fill_control(Path& path, std::span<TxDesc> out, std::size_t count) noexcept;

  std::vector<std::unique_ptr<Path>> paths_;
  Path* cnps_ = nullptr;  ///< null: CNPs go where their queue pairs' other packets go
  IntrusiveList<Path, &Path::active> active_;
  IntrusiveList<QpLinks, &QpLinks::given> given_;
};

}  // namespace tensorwire::transport
