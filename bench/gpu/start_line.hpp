// Where the rank threads of a benchmark meet.
#pragma once

#include <atomic>
#include <thread>

namespace tensorwire::bench {

/// Where rank threads wait for each other, spinning: a thread that the system has to wake would be late for the start.
class StartLine {
 public:
  explicit StartLine(int ranks) : ranks_(ranks) {}
  void arrive_and_wait() {
    const unsigned turn = turn_.load();
    if (here_.fetch_add(1) + 1 == ranks_) {
      here_.store(0);
      turn_.store(turn + 1);
      return;
    }
    while (turn_.load() == turn) std::this_thread::yield();
  }

 private:
  int ranks_;
  std::atomic<int> here_{0};
  std::atomic<unsigned> turn_{0};
};

}  // namespace tensorwire::bench
