// All-reduce around a ring.
#include <fmt/format.h>

#include "base/error.hpp"
#include "collective/algorithms.hpp"
#include "collective/builder_parts.hpp"

namespace tensorwire::collective {

// Each rank awaits 2(n-1) messages of its predecessor, message m in area m of the slot:
//   m = 0 .. n-2   chunk (rank - 2 - m): a partial sum. This rank adds its part and passes it on; of the last, which is
//                  chunk (rank), it has the whole sum.
//   m = n-1 ..     chunk (rank - 1 - (m - (n-1))): finished; is copied out and passed on, but by who gets it last.
//
// A rank hears of its predecessor's signature only, and passes nothing on before that matched. A finished chunk has
// passed every rank, so whoever writes user memory knows that all signatures were equal, one to the next.
//
// Bytes that the CPU touches for a tensor of S bytes, the transport's own aside:
//   reduce 2 (n-1)/n S r + (n-1)/n S w; copy out (n-1)/n S r + (n-1)/n S w
Program build_ring(const Shape& shape, std::uint32_t rank) {
  const std::uint32_t n = shape.ranks;
  if (n == 1 && rank == 0) return build_alone(Algorithm::kRing, shape);
  ProgramBuilder builder{Algorithm::kRing, shape, rank};
  if (n > kMaxRingRanks) {
    throw Error{"build a ring", fmt::format("{} ranks; {} are possible", n, kMaxRingRanks), "Use two-shot"};
  }
  refuse_average_of_parts(shape, "ring");
  const Chunks chunks{shape.bytes(), n};
  const std::uint32_t predecessor = (rank + n - 1) % n;
  const std::uint32_t successor = (rank + 1) % n;
  const auto area = [&](std::uint32_t message) { return message * chunks.stride(); };
  const auto message_number = [](std::uint32_t message) { return static_cast<std::uint8_t>(message); };
  const auto pass_on = [&](std::uint32_t message, Location from, std::uint64_t bytes, std::uint16_t need) {
    return builder.write(successor, message_number(message), from, area(message), bytes, {need});
  };

  // The first chunk is sent straight from user memory. In place, its finished sum comes there: not before it has passed
  // the successor, so at most a duplicate, which the successor drops, can still read it.
  const std::uint64_t first_bytes = chunks.bytes(predecessor);
  const std::uint16_t first = pass_on(0, {Place::kInput, 0, chunks.offset(predecessor)}, first_bytes, kNoStep);
  if (first_bytes != 0) builder.sent(first);
  const std::uint16_t first_arrival = builder.arrival(predecessor, 0);
  const std::uint16_t matched = builder.match({first_arrival});
  std::vector<std::uint16_t> before_release{matched};

  for (std::uint32_t m = 0; m < n - 1; ++m) {
    const std::uint32_t chunk = (rank + 2 * n - 2 - m) % n;
    const std::uint64_t bytes = chunks.bytes(chunk);
    if (bytes == 0) continue;
    const std::uint16_t arrived = m == 0 ? first_arrival : builder.arrival(predecessor, message_number(m));
    const std::vector<Location> operands{peer_slot(predecessor, area(m)), {Place::kInput, 0, chunks.offset(chunk)}};
    const Location result{Place::kSendSlot, 0, area(m)};
    const bool finished = m == n - 2;
    const std::uint16_t reduced = finished ? builder.reduce(operands, {Place::kOutput, 0, chunks.offset(chunk)}, result,
                                                            bytes, {arrived, matched})
                                           : builder.reduce_part(operands, result, bytes, {arrived, matched});
    pass_on(m + 1, result, bytes, reduced);
    before_release.push_back(reduced);
  }

  for (std::uint32_t m = n - 1; m < 2 * (n - 1); ++m) {
    const std::uint32_t chunk = (rank + 2 * n - 2 - m) % n;
    const std::uint64_t bytes = chunks.bytes(chunk);
    if (bytes == 0) continue;
    const std::uint16_t arrived = builder.arrival(predecessor, message_number(m));
    const Location slot = peer_slot(predecessor, area(m));
    if (m + 1 < 2 * (n - 1)) {
      // From the slot itself: it is released when the successor needs no retransmission any more.
      const std::uint16_t written =
          builder.write(successor, message_number(m + 1), slot, area(m + 1), bytes, {arrived, matched});
      before_release.push_back(builder.sent(written));
    }
    before_release.push_back(builder.copy(slot, {Place::kOutput, 0, chunks.offset(chunk)}, bytes, {arrived, matched}));
  }
  builder.release(predecessor, before_release);
  return builder.finish();
}

}  // namespace tensorwire::collective
