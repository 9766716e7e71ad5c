// The engine thread: makes progress when the application does not. Three manners:
//
//   serving   after work it looks again for a moment (spins, then yields), then sleeps until a socket is readable or a
//             timer is due. This is what an application gets that blocks, computes, or spins on memory.
//   standing by   the application polls by itself, so waking for each arrival would only take its core away: the socket
//             is not watched, and the thread looks once a millisecond whether the application still polls.
//   idle      serving with nothing outstanding: asleep without a time limit.
//
// It goes to stand-by after a run of wake-ups at which the application had already taken (or was about to take) what
// came; it returns when the application waits for a completion event (serve_now), or when it has not polled from one
// look to the next. A return because data lay waiting doubles the run that the next stand-by needs, so that a program
// that polls its queue and then spins on memory (ib_write_lat) is not left alone for a millisecond again and again.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"
#include "softhca/shard.hpp"

namespace tensorwire::softhca {

class EngineThread final : public FdWatcher {
 public:
  /// A descriptor beside the links: `serve` takes from it until nothing is left (this thread, no lock held, no throw).
  struct Side {
    int fd = -1;
    std::function<void()> serve;
  };

  EngineThread();
  ~EngineThread() override;

  /// All signals but memory faults are blocked in the thread. @throws Error when the system gives no thread.
  void start(Shard& shard, std::array<int, 2> receive_fds, std::vector<Side> sides, const std::string& name);
  void stop() noexcept;
  /// After fork, in the child: there is no thread to join.
  void abandon() noexcept;

  // ---- any thread
  /// Around a pass of the application. The second wakes the thread if a timer now comes before it wakes by itself, or
  /// if work was left over. `polled`: the pass also drained the links, as one does who polls.
  /// The application polls steadily, and the thread only looks now and then whether it still does.
  [[nodiscard]] bool standing_by() const noexcept { return standing_by_.load(std::memory_order_relaxed); }
  void before_inline_pass() noexcept { inline_inside_.fetch_add(1, std::memory_order_relaxed); }
  void after_inline_pass(const Shard::Result& result, bool polled) noexcept;
  /// The application is about to wait without polling.
  void serve_now() noexcept;

  void watch_fd(int fd) override;
  void unwatch_fd(int fd) noexcept override;

 private:
  void run() noexcept;
  void serve() noexcept;
  void stand_by() noexcept;
  [[nodiscard]] bool linger() noexcept;
  /// Sleeps until something is ready or `until`; returns true when a link had something.
  bool wait(Ps until) noexcept;
  void kick() noexcept;
  void serve_sides() noexcept;
  void watch_receive_sockets(bool on) noexcept;
  void judge_wake(bool by_link) noexcept;
  [[nodiscard]] bool application_polls() const noexcept;
  [[nodiscard]] bool data_waits() const noexcept;

  UniqueFd epoll_;
  UniqueFd event_;
  Shard* shard_ = nullptr;
  std::array<int, 2> receive_fds_{-1, -1};  ///< UdpLink::receive_fds()
  std::vector<Side> sides_;
  std::unique_ptr<std::thread> thread_;

  // The thread's own.
  std::uint32_t useless_wakes_ = 0;
  std::uint32_t useless_needed_ = 0;
  Ps last_work_ = 0;
  Ps last_sides_ = 0;
  Ps linger_time_ = 0;

  // Shared.
  alignas(64) std::atomic<Ps> last_inline_{-kSecond};
  std::atomic<std::uint32_t> inline_inside_{0};  ///< threads of the application inside a pass
  std::atomic<std::uint64_t> inline_passes_{0};
  alignas(64) std::atomic<bool> stopping_{false};
  std::atomic<bool> standing_by_{false};
  std::atomic<bool> serve_requested_{false};
  /// When the thread wakes by itself; 0 while it is awake.
  std::atomic<Ps> asleep_until_{0};
};

}  // namespace tensorwire::softhca
