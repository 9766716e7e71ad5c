// A shared receive queue written a second time: buffers in the order of posting, a limit that is told once. Also what a
// posted receive is to every reference queue pair.
#pragma once

#include <cstdint>
#include <deque>

#include "hits.hpp"
#include "sge_list.hpp"
#include "transport/types.hpp"

namespace tensorwire::transport::faults {

struct ReferenceReceive {
  std::uint64_t wr_id = 0;
  std::uint64_t capacity = 0;
  SgeList sges;

  ReferenceReceive() = default;
  ReferenceReceive(std::uint64_t id, const SgeList& list) : wr_id(id), sges(list) {
    for (const Sge& sge : list.span()) capacity += sge.length;
  }
};

class ReferenceSrq {
 public:
  ReferenceSrq(PdId domain, Hits& hits) : pd(domain), hits_(hits) {}

  void post(const ReferenceReceive& receive) { waiting_.push_back(receive); }
  void arm(std::uint32_t limit) {
    limit_ = limit;
    tell(Point::kSrqLimitAtOnce);
  }
  [[nodiscard]] bool armed() const noexcept { return limit_ != 0; }
  [[nodiscard]] std::size_t size() const noexcept { return waiting_.size(); }
  [[nodiscard]] const ReferenceReceive* front() const noexcept {
    return waiting_.empty() ? nullptr : &waiting_.front();
  }
  ReferenceReceive take() {
    const ReferenceReceive taken = waiting_.front();
    waiting_.pop_front();
    tell(Point::kSrqLimit);
    return taken;
  }

  PdId pd;
  std::uint32_t events = 0;  ///< limit reached, not yet seen to be raised
  std::uint32_t held = 0;    ///< buffers that messages under way have taken

 private:
  void tell(Point point) {
    if (waiting_.size() >= limit_) return;
    hits_(point);
    limit_ = 0;
    ++events;
  }

  Hits& hits_;
  std::deque<ReferenceReceive> waiting_;
  std::uint32_t limit_ = 0;
};

}  // namespace tensorwire::transport::faults
