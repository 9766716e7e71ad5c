// The open connections of one rank after the rendezvous, and the thread that watches them. Rank 0's hub assembles the
// collective calls and spreads news; every other hub talks to rank 0 only, and to all others when that is silent.
//
// One mutex guards everything but the failure flag. The watcher holds it while it moves bytes and never while it
// sleeps; sockets are non-blocking, so no one is held up by a slow peer.
#pragma once

#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/time.hpp"
#include "bootstrap/gather_table.hpp"
#include "bootstrap/group.hpp"
#include "bootstrap/rendezvous.hpp"

namespace tensorwire::bootstrap {

class Hub {
 public:
  Hub(int rank, Joined joined, Ps timeout);
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  /// One collective call; everyone's parts by rank. @throws Error as Group's calls do.
  std::vector<Bytes> call(CallKind kind, int root, std::span<const std::byte> mine, Ps bound);

  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::optional<FailedRank> failed_rank() const;
  void abort(std::string_view reason) noexcept;
  void accuse(int rank, FailureKind kind, std::string_view reason) noexcept;
  void leave() noexcept;

  // Roll calls (hub_reports.cpp).
  void set_reporter(std::uint16_t topic, Reporter reporter);
  void roll_call(std::uint16_t topic) noexcept;
  [[nodiscard]] std::vector<Report> reports(std::uint16_t topic) const;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] std::string address_of(int rank) const;
  [[nodiscard]] const std::vector<std::string>& hosts() const noexcept { return hosts_; }

 private:
  struct Peer {
    explicit Peer(Link&& admitted) noexcept : link(std::move(admitted)) {}

    Link link;
    std::deque<EncodedFrame> outgoing;
    std::size_t sent_of_first = 0;
    bool said_goodbye = false;  // what follows is no death
    bool heard = false;         // of a direct line: the rank at its other end has spoken

    [[nodiscard]] bool open() const noexcept { return static_cast<bool>(link.socket); }
  };
  /// How a call ended: the parts, or why not.
  struct Outcome {
    std::vector<Bytes> parts;
    std::string error;
  };
  using Lock = std::unique_lock<std::mutex>;

  // The watcher (hub_watch.cpp). All but watch() are called with the mutex held.
  void watch();
  /// What poll(2) is to look at, and whose it is.
  void list(std::vector<pollfd>& entries, std::vector<Peer*>& owners);
  [[nodiscard]] bool any_open() const;
  void receive(Peer& peer);
  void handle(Peer& peer, Frame frame);
  void handle_on_server(Peer& peer, Frame& frame);
  void handle_on_client(Peer& peer, Frame& frame);
  void connection_ended(Peer& peer, int error);
  void died(int rank, int error);
  void goodbye_from(Peer& peer);
  void protocol_violation(Peer& peer);

  // Sending; with the mutex held.
  void send(Peer& peer, const EncodedFrame& frame);
  void send_to_all(const EncodedFrame& frame, const Peer* except = nullptr);
  void flush(Peer& peer);
  void wake_watcher() noexcept;
  [[nodiscard]] bool all_flushed() const;

  // Direct lines (hub_lines.cpp); with the mutex held. Only the watcher opens and ends them.
  /// Rank 0, which was not silent so far, was told something to which it answers: where it does not, the others are
  /// told.
  void expect_answer(Ps patience);
  void heard_from_centre();
  void go_around_centre();
  void open_lines();
  void accept_line();
  void tell_by_lines(const EncodedFrame& frame);
  void handle_on_line(Peer& line, Frame& frame);
  void line_ended(Peer& line, int error);

  // Roll calls; with the mutex held.
  /// Whether it is worth asking again; then it is taken to be asked.
  [[nodiscard]] bool is_due(std::uint16_t topic);
  void ask_all(std::uint16_t topic);
  void answer(Peer& asker, const RollCall& question);
  void take_report(ReportOf report, const Peer* from);
  [[nodiscard]] Bytes own_report(std::uint16_t topic) const;

  /// Takes the mutex.
  void give_up(const Failure& news);

  // Calls and failures; with the mutex held.
  void contribute(int rank, Contribution contribution);
  void doom(const Verdict& verdict);
  void declare_failed(FailedRank failed);
  /// Calls that this rank has given up on: nobody here would pick their outcome up.
  [[nodiscard]] bool is_past(std::uint64_t sequence) const noexcept { return sequence + 1 < next_sequence_; }
  [[nodiscard]] bool serves() const noexcept { return rank_ == 0; }
  [[nodiscard]] bool is_centre(const Peer& peer) const noexcept { return !serves() && &peer == peers_.data(); }
  [[nodiscard]] bool is_line(const Peer& peer) const noexcept { return !serves() && !is_centre(peer); }
  [[nodiscard]] std::string name(int rank) const;
  void give_up_on(Lock& lock, std::uint64_t sequence, CallKind kind, Ps bound);
  [[noreturn]] void throw_failed(CallKind during) const;

  const int rank_;
  const std::vector<std::string> hosts_;
  const Ps timeout_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Peer> peers_;
  GatherTable table_;                          // rank 0 only
  std::map<std::uint64_t, Outcome> outcomes_;  // calls that this rank has not picked up yet
  std::uint64_t next_sequence_ = 1;
  /// What is known of one topic.
  struct Topic {
    Reporter reporter;
    std::vector<Report> reports;
    Ps asked = 0;  ///< when this rank last asked: rank 0 all, another one rank 0
  };
  std::map<std::uint16_t, Topic> topics_;
  std::optional<FailedRank> failure_;
  std::atomic<bool> failed_{false};
  bool leaving_ = false;
  bool server_left_ = false;
  Ps linger_until_ = kNever;
  Socket wake_;  // an eventfd

  // Direct lines; rank 0 has none.
  /// Rank 0's watcher answers within a millisecond, on a busy machine some more.
  static constexpr Ps kPatience = 50 * kMillisecond;
  static constexpr int kStranger = -1;  // who is at the other end of a line, before it has proved which rank it is
  Socket door_;
  const std::vector<Address> doors_;  // by rank
  const std::string line_secret_;
  std::list<Peer> lines_;
  Ps answer_due_ = kNever;           // when rank 0 is taken to be silent
  bool centre_is_silent_ = false;    // nothing came from it since
  std::optional<Failure> own_news_;  // by what this rank gave up

  std::thread watcher_;
};

}  // namespace tensorwire::bootstrap
