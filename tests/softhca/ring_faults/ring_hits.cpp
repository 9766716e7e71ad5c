#include "ring_hits.hpp"

namespace tensorwire::softhca::faults {

using transport::faults::Point;

// Left out: datagrams, which no channel carries; what only a network does; what the seeds of CI meet too rarely to be
// asked for.
bool reached_over_rings(Point point) noexcept {
  const auto between = [point](Point first, Point last) { return point >= first && point <= last; };
  if (between(Point::kUdReceived, Point::kUdDrained) || between(Point::kRtsToSqe, Point::kUdToErr)) return false;
  switch (point) {
    case Point::kFaultPause:  // the rings have their own
    case Point::kFaultBlock:
    case Point::kInitToErr:
    case Point::kRtrToReset:
    case Point::kCnpStranger:
    case Point::kReplyBroken:
    case Point::kUcLength:
    case Point::kUcReth:
      return false;
    default:
      return true;
  }
}

std::vector<transport::faults::Tally> RingWorkspace::tally() const {
  std::vector<transport::faults::Tally> all;
  for (std::size_t i = 0; i < transport::faults::kPointNames.size(); ++i)
    if (reached_over_rings(static_cast<Point>(i))) all.push_back({transport::faults::kPointNames[i], hits.counts[i]});
  for (std::size_t i = 0; i < kRingPointNames.size(); ++i) all.push_back({kRingPointNames[i], ring_hits[i]});
  return all;
}

}  // namespace tensorwire::softhca::faults
