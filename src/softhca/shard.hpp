// The progress loop: one engine, its links, one lock. A pass drains the links, takes doorbells, fires timers,
// transmits, and then, without the lock, wakes whoever waits for completions. Whoever has the time makes the pass: the
// engine thread, or the application inside poll_cq and post_send. Who finds the lock taken leaves a doorbell and goes;
// who held it looks for doorbells after letting go, so none is forgotten.
//
// Timers never fire before a drain that began after their deadline: a process that was off the CPU must not retransmit
// what is already acknowledged in its socket.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "softhca/cq.hpp"
#include "softhca/link.hpp"
#include "softhca/local_link.hpp"
#include "softhca/qp.hpp"
#include "softhca/shard_lock.hpp"
#include "softhca/udp_link.hpp"

namespace tensorwire::softhca {

/// Where a link's descriptors are watched: the engine thread.
class FdWatcher {
 public:
  virtual ~FdWatcher() = default;
  virtual void watch_fd(int fd) = 0;
  virtual void unwatch_fd(int fd) noexcept = 0;
};

class Shard final : public LinkHost, private transport::EventListener {
 public:
  struct PendingEvent {
    HcaEvent event;
    const void* object;  ///< whose event it is: a Qp, CqImpl or SrqImpl; null for the port's
    void* user;
  };
  enum class Depth : std::uint8_t {
    kTransmit,  ///< doorbells and egress only: what post_send wants done at once
    kPoll,      ///< what an application that polls steadily wants: see skip_sockets() and hold_back()
    kFull,
  };
  struct Result {
    bool passed = false;  ///< false: somebody else holds the lock (and will see our doorbell)
    bool worked = false;  ///< something moved
    bool left = false;    ///< stopped with work left over: come again
    Ps end = 0;           ///< when the last pass was over; 0 without one
  };

  Shard(const HostAddress& address, const transport::EngineConfig& config, FdWatcher& watcher);

  /// Once, before any progress. `local` may be null.
  void attach(std::unique_ptr<UdpLink> udp, std::unique_ptr<LocalLink> local);

  Result progress(Depth depth) noexcept;
  /// Leaves a doorbell; the caller then tries to make progress.
  void ring(Qp& qp) noexcept;
  /// When timers want the next pass; any thread.
  [[nodiscard]] Ps deadline() const noexcept { return deadline_.load(); }
  /// Something waits for the application's next call; any thread.
  [[nodiscard]] bool holds_back() const noexcept { return holds_back_.load(std::memory_order_relaxed); }

  /// Set-up work under the lock; afterwards doorbells that were left meanwhile are served.
  template <typename Body>
  decltype(auto) locked(Body&& body) {
    const ServeDoorbells serve{*this};
    const std::lock_guard guard{lock_};
    return std::forward<Body>(body)();
  }

  // ---- lock held
  /// From now on there is memory of GPUs. It outlives the shard.
  void use(StagedMemory& staged) noexcept;
  [[nodiscard]] transport::Engine& engine() noexcept override { return engine_; }
  [[nodiscard]] UdpLink& udp() noexcept { return *udp_; }
  void adopt(UniqueFd connection);
  void note_completion(CqImpl& cq) noexcept;
  void note_event(const PendingEvent& event) noexcept { pending_events_.push_back(event); }
  /// Takes every doorbell off the stack, so that a queue pair can go.
  void take_doorbells(Ps now) noexcept;
  /// Drops what is still to be told of an object that goes.
  void forget_events(const void* object) noexcept;
  void forget(CqImpl& cq) noexcept;

  // ---- any thread, lock not held
  [[nodiscard]] LocalLink* local() noexcept { return local_.get(); }
  [[nodiscard]] bool prepare_sleep() noexcept;
  void end_sleep() noexcept;
  /// Returns when every event taken off before this call was told. Not to be called from an event callback.
  void wait_for_events() noexcept;
  void add_event_callback(EventCallback callback);
  void remove_event_callback(void* user) noexcept;
  /// An event of the port, told at once.
  void tell(HcaEvent event) noexcept;
  void close_sockets() noexcept;

  // ---- LinkHost
  [[nodiscard]] const HostAddress& address() const noexcept override { return address_; }
  void run_locked(const std::function<void()>& body) override { locked(body); }
  void bind_path(transport::PathId path, Link& link) override;
  void watch(int fd) override { watcher_.watch_fd(fd); }
  void unwatch(int fd) noexcept override { watcher_.unwatch_fd(fd); }

 private:
  struct ServeDoorbells {
    Shard& shard;
    ~ServeDoorbells() {
      if (shard.doorbells_.load() != nullptr) shard.progress(Depth::kTransmit);
    }
  };
  /// What a pass found to tell, told after the lock is let go.
  struct Notices {
    std::array<CqImpl*, 16> queues;
    std::size_t count = 0;
    std::vector<PendingEvent> events;  ///< rare: errors and first packets
  };

  bool pass(Depth depth, Result& result) noexcept;
  [[nodiscard]] bool skip_sockets(Depth depth, Ps now) noexcept;
  [[nodiscard]] bool hold_back(Depth depth, bool received) noexcept;
  bool transmit(Ps now) noexcept;
  [[nodiscard]] Notices collect() noexcept;
  void deliver(const Notices& notices) noexcept;
  void call_back(std::span<const PendingEvent> events) noexcept;
  void on_async_event(transport::AsyncEvent event, transport::QueuePair& qp) noexcept override;
  void on_srq_event(transport::AsyncEvent event, transport::SharedReceiveQueue& srq) noexcept override;

  const HostAddress address_;
  const Ps ack_timeout_floor_;
  FdWatcher& watcher_;
  ShardLock lock_;
  transport::Engine engine_;
  std::unique_ptr<UdpLink> udp_;
  std::unique_ptr<LocalLink> local_;
  StagedMemory* staged_ = nullptr;  ///< null while no memory of a GPU is registered
  std::vector<Link*> link_of_path_;
  std::array<transport::TxDesc, kMaxTxBatch> descs_;
  Ps timers_held_until_ = 0;  ///< the engine's timers, after a pass that lost the CPU
  Ps local_busy_until_ = 0;
  int sockets_skipped_ = 0;  ///< passes in a row

  alignas(64) std::atomic<Qp*> doorbells_{nullptr};
  alignas(64) std::atomic<Ps> deadline_{kNever};
  std::atomic<bool> holds_back_{false};

  std::vector<CqImpl*> noticed_;                    ///< lock
  std::vector<PendingEvent> pending_events_;        ///< lock
  std::atomic<std::uint32_t> events_in_flight_{0};  ///< taken off pending_events_ and not yet told
  std::mutex events_mutex_;                         ///< the callbacks and their running; never taken under the lock
  std::vector<EventCallback> event_callbacks_;
};

}  // namespace tensorwire::softhca
