#include "transport/timers.hpp"

#include "transport/qp.hpp"

namespace tensorwire::transport {

void Timers::place(std::size_t at, Entry entry) noexcept {
  heap_[at] = entry;
  entry.qp->*slot_ = at;
}

void Timers::sift_up(std::size_t at, Entry entry) noexcept {
  while (at > 0) {
    const std::size_t parent = (at - 1) / 2;
    if (heap_[parent].deadline <= entry.deadline) break;
    place(at, heap_[parent]);
    at = parent;
  }
  place(at, entry);
}

void Timers::sift_down(std::size_t at, Entry entry) noexcept {
  for (std::size_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
    if (child + 1 < heap_.size() && heap_[child + 1].deadline < heap_[child].deadline) ++child;
    if (entry.deadline <= heap_[child].deadline) break;
    place(at, heap_[child]);
    at = child;
  }
  place(at, entry);
}

void Timers::set(Qp& qp, Ps deadline) noexcept {
  std::size_t at = qp.*slot_;
  if (at == QpLinks::kNoTimer) {
    at = heap_.size();
    heap_.push_back({deadline, &qp});  // within the reserved room: one entry per queue pair at most
    sift_up(at, {deadline, &qp});
  } else if (deadline < heap_[at].deadline) {
    sift_up(at, {deadline, &qp});
  } else {
    sift_down(at, {deadline, &qp});
  }
}

void Timers::cancel(Qp& qp) noexcept {
  const std::size_t at = qp.*slot_;
  if (at == QpLinks::kNoTimer) return;
  qp.*slot_ = QpLinks::kNoTimer;
  const Entry last = heap_.back();
  heap_.pop_back();
  if (at == heap_.size()) return;
  if (at > 0 && last.deadline < heap_[(at - 1) / 2].deadline) {
    sift_up(at, last);
  } else {
    sift_down(at, last);
  }
}

Qp* Timers::pop_due(Ps now) noexcept {
  if (next_deadline() > now) return nullptr;
  Qp* qp = heap_.front().qp;
  cancel(*qp);
  return qp;
}

}  // namespace tensorwire::transport
