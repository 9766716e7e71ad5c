// One channel of the simulation: both ends of the real thing in one process, and beside them what the model says lies
// in the ring. A hostile channel has no sender of ours: the test writes its ring by hand.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "record.hpp"
#include "softhca/local_channel.hpp"
#include "transport/withdrawals.hpp"

namespace tensorwire::softhca::faults {

struct Channel {
  Channel(std::size_t from_host, std::size_t to_host, const wire::Gid& sender, bool same_process,
          const transport::Withdrawals& withdrawals);

  /// The model: records written, taken, and given back by the consumer.
  std::uint64_t published = 0;
  std::uint64_t consumed = 0;
  std::uint64_t given_back = 0;
  [[nodiscard]] bool has_room(std::uint32_t slots) const noexcept {
    return published - given_back + slots <= kRingSlots;
  }
  /// Whether somebody rang, which is forgotten by asking.
  [[nodiscard]] static bool rang(const UniqueFd& fd) noexcept;

  std::size_t from;
  std::size_t to;
  wire::Gid sender;
  bool same_process;
  static constexpr std::uint64_t kProbe = 0x7072'6f62'65ULL;
  std::unique_ptr<std::uint64_t> probe = std::make_unique<std::uint64_t>(kProbe);
  /// Where its records come from, as its consumer says. Nothing marks them on their way.
  [[nodiscard]] transport::PacketSource origin() const noexcept { return {sender, transport::kMaxMessageBytes, false}; }
  /// Who pulls from it reads the memory of another process.
  [[nodiscard]] bool stranger() const noexcept { return *probe != kProbe; }

  std::optional<RingMemory> memory = RingMemory::create();
  std::unique_ptr<OutgoingChannel> out;
  std::optional<RingProducer> hand;  ///< of a hostile channel, in the place of `out`
  std::unique_ptr<IncomingChannel> in;

  std::deque<Record> records;  ///< written and not yet taken
  std::uint64_t done = 0;      ///< bytes of the first that are in place
  bool interleaved = false;    ///< another record was taken since

  transport::PathId path = 0;
  bool blocked = false;
  bool hung_up = false;        ///< its consumer has seen its producer go
  bool lied = false;           ///< its consumer wrote nonsense about what it gave back
  bool consumer_asks = false;  ///< to be woken; nobody has yet
  bool producer_asks = false;
  Ps visit_at = kNever;  ///< when its consumer looks at it next, unless it sleeps
  Ps look_at = kNever;   ///< when its producer looks for room
  Ps in_dies_at = kNever, out_dies_at = kNever;
  enum class Break : std::uint8_t { kNothing, kSource, kTarget } breaks = Break::kNothing;  ///< under the next pull
};

}  // namespace tensorwire::softhca::faults
