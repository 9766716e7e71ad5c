// Timers of one kind, at most one for each queue pair, in an indexed binary heap: setting, moving and cancelling cost
// O(log n) and allocate nothing, and the earliest deadline is exact. Owned by the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.hpp"
#include "transport/qp_links.hpp"

namespace tensorwire::transport {

struct Qp;

class Timers {
 public:
  /// @param slot where a queue pair remembers its place in this heap
  explicit Timers(std::size_t QpLinks::*slot) noexcept : slot_(slot) {}

  /// Set-up path: room for this many queue pairs.
  void reserve(std::size_t queue_pairs) { heap_.reserve(queue_pairs); }

  void set(Qp& qp, Ps deadline) noexcept;
  void cancel(Qp& qp) noexcept;
  [[nodiscard]] Ps next_deadline() const noexcept { return heap_.empty() ? kNever : heap_.front().deadline; }
  /// Takes out the earliest timer that is due; nullptr when none is.
  Qp* pop_due(Ps now) noexcept;

 private:
  struct Entry {
    Ps deadline;
    Qp* qp;
  };

  void place(std::size_t at, Entry entry) noexcept;
  void sift_up(std::size_t at, Entry entry) noexcept;
  void sift_down(std::size_t at, Entry entry) noexcept;

  std::size_t QpLinks::*slot_;
  std::vector<Entry> heap_;
};

}  // namespace tensorwire::transport
