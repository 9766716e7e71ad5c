// What the same-host link was seen doing, beside what the engines were (hits.hpp of the fault simulation), and which of
// those points a ring can reach at all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/faults/run.hpp"

namespace tensorwire::softhca::faults {

// clang-format off
#define TW_RING_POINTS(X)                                                  \
  X(kInline, "ring: payload inside the record")                            \
  X(kPulled, "ring: payload pulled from the peer's memory")                \
  X(kPulledInProcess, "ring: payload pulled inside one process")           \
  X(kSteps, "ring: pulled in several steps")                               \
  X(kInterleaved, "ring: records of other channels between two steps")     \
  X(kOvertaken, "ring: judged otherwise between two steps")                \
  X(kWindowOvertaken, "ring: memory window closed between two steps")      \
  X(kInvalidatePulled, "ring: SEND with invalidate pulled in several steps") \
  X(kBufferKept, "ring: buffer of a shared queue kept between two steps")  \
  X(kNotified, "ring: congestion notification in answer to packets")       \
  X(kPacedWhole, "ring: a queue pair of whole messages held back by its rate") \
  X(kSecondAddress, "ring: one more channel, for another pair of addresses") \
  X(kLap, "ring: a lap was completed")                                     \
  X(kFull, "ring: not a slot was free")                                    \
  X(kBlocked, "ring: path blocked until there is room")                    \
  X(kUnblocked, "ring: path unblocked")                                    \
  X(kOldLife, "ring: a record of an earlier life")                         \
  X(kWithdrawn, "ring: a message that its sender took back")               \
  X(kVanished, "ring: what was sent to a peer that is gone vanished")      \
  X(kSlept, "ring: a host fell asleep")                                    \
  X(kKeptAwake, "ring: a host found work instead of sleep")                \
  X(kConsumerWoken, "ring: who takes records was woken")                   \
  X(kProducerWoken, "ring: who waits for room was woken")                  \
  X(kReconnected, "ring: a channel was made in place of one that is gone") \
  X(kMixed, "ring: a record towards a host that answers in packets")       \
  X(kPauseHost, "fault: a host takes no records")                          \
  X(kLateWake, "fault: a wake-up comes late")                              \
  X(kSpuriousWake, "fault: a wake-up without a reason")                    \
  X(kSourceGone, "fault: source unmapped when it is pulled")               \
  X(kTargetGone, "fault: target unmapped when it is pulled to")            \
  X(kTargetGoneInProcess, "fault: target gone inside one process")         \
  X(kStranger, "fault: the process id is another process now")             \
  X(kProducerDied, "fault: who writes the ring dies")                      \
  X(kConsumerDied, "fault: who reads the ring dies")                       \
  X(kHostileRecord, "hostile: a record that no engine made")               \
  X(kHostilePulled, "hostile: a record whose bytes are not there")         \
  X(kHostileUnreliable, "hostile: a record for an unreliable connection") \
  X(kHostileDamaged, "hostile: damaged, and still a record")               \
  X(kHostileMalformed, "hostile: damaged, and not a record any more")      \
  X(kHostileRewritten, "hostile: a record rewritten while it is pulled")   \
  X(kHostileWords, "hostile: stamps and flags overwritten")                \
  X(kHostileFreed, "hostile: more records given back than were written")
// clang-format on

enum class RingPoint : std::uint8_t {
#define TW_POINT(id, text) id,
  TW_RING_POINTS(TW_POINT)
#undef TW_POINT
      kCount
};

inline constexpr std::array<const char*, static_cast<std::size_t>(RingPoint::kCount)> kRingPointNames = {
#define TW_POINT(id, text) text,
    TW_RING_POINTS(TW_POINT)
#undef TW_POINT
};

/// A run over rings must have seen that of the engines, too.
[[nodiscard]] bool reached_over_rings(transport::faults::Point point) noexcept;

struct RingWorkspace final : transport::faults::Workspace {
  std::array<std::uint64_t, kRingPointNames.size()> ring_hits{};

  void hit(RingPoint point) noexcept { ++ring_hits[static_cast<std::size_t>(point)]; }
  [[nodiscard]] std::vector<transport::faults::Tally> tally() const override;
};

}  // namespace tensorwire::softhca::faults
