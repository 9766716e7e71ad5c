// What this rank is doing, for those who ask from another thread (the bootstrap's watcher, which answers roll calls).
// One thread writes, with plain stores and no lock; any thread reads, and never sees a mixture of two states.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/time.hpp"
#include "comm/rank_report.hpp"

namespace tensorwire::comm {

class ActivityBoard {
 public:
  // The thread that runs operations.
  void begin(const collective::Signature& signature, std::uint64_t bytes, Ps now) noexcept;
  void end(Ps now) noexcept { change(RankReport::State::kBetween, now); }
  void fail(Ps now) noexcept { change(RankReport::State::kFailed, now); }
  /// Whom it waits for, or whom others want to know of, and what it heard of that rank last.
  void set_subject(int rank, const collective::Heard& heard) noexcept;

  /// Any thread. @param now as given to the others
  [[nodiscard]] RankReport read(Ps now) const;

 private:
  /// A signature as it goes on the wire.
  struct Entry {
    std::atomic<std::uint64_t> low = 0, high = 0;
  };
  /// Odd while the writer is at work. Stores are releases and loads acquires, which costs nothing on x86 and needs no
  /// fence: a reader that saw one store of a change sees its odd number, too.
  class Change {
   public:
    explicit Change(ActivityBoard& board) noexcept : board_(board) { step(std::memory_order_relaxed); }
    ~Change() { step(std::memory_order_release); }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    void step(std::memory_order order) noexcept {
      board_.version_.store(board_.version_.load(std::memory_order_relaxed) + 1, order);
    }
    ActivityBoard& board_;
  };

  template <typename T>
  static void put(std::atomic<T>& cell, T value) noexcept {
    cell.store(value, std::memory_order_release);
  }
  template <typename T>
  [[nodiscard]] static T get(const std::atomic<T>& cell) noexcept {
    return cell.load(std::memory_order_acquire);
  }
  void change(RankReport::State state, Ps now) noexcept;
  [[nodiscard]] RankReport read_once(Ps now) const;

  std::atomic<std::uint64_t> version_ = 0;
  std::array<Entry, RankReport::kMostRecent> recent_;
  std::atomic<std::uint64_t> begun_ = 0;
  std::atomic<RankReport::State> state_ = RankReport::State::kBetween;
  std::atomic<std::uint64_t> bytes_ = 0;
  std::atomic<Ps> since_ = 0;
  std::atomic<int> subject_ = -1;
  std::atomic<std::uint64_t> heard_ = 0;  ///< collective << 32 | number; 0: nothing
};

}  // namespace tensorwire::comm
