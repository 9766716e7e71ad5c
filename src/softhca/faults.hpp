// Fault injection on outgoing packets, asked for by TENSORWIRE_FAULTS or by API: what to inject (FaultConfig, one
// grammar), what happens to the n-th packet (judge(): pure, by seed and index), and FaultInjector, which stands between
// the UDP link and its sockets, and keeps packets that leave later. Sans-I/O: it is given the time and a sink.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.hpp"
#include "softhca/link.hpp"
#include "wire/opcode.hpp"

namespace tensorwire::softhca {

/// Rates are parts per million of the packets that `opcodes` selects.
struct FaultConfig {
  std::uint32_t drop = 0;
  std::uint32_t duplicate = 0;
  std::uint32_t reorder = 0;     ///< the packet leaves after 1 to kMaxOvertaking later ones, or kReorderBound later
  std::uint32_t corrupt = 0;     ///< one bit is flipped after the ICRC was made
  std::uint32_t congestion = 0;  ///< the IP ECN field becomes CE
  std::uint32_t delay = 0;
  Ps delay_time = 0;
  Ps late_dma = 0;        ///< not 0: a packet's source is read only when it leaves, up to so much later (late_dma.hpp)
  Ps gpu_write_late = 0;  ///< not 0: what arrives for GPU memory lands so much later (gpu/staged_memory.hpp)
  std::uint64_t seed = 1;
  std::bitset<256> opcodes = std::bitset<256>().set();  ///< by opcode byte

  bool operator==(const FaultConfig&) const = default;
};

inline constexpr std::uint32_t kMaxOvertaking = 4;
inline constexpr Ps kReorderBound = 200 * kMicrosecond;

/// Items separated by commas, spaces around them allowed, each word at most once except opcode:
///   drop= dup= reorder= corrupt= ce=  RATE   a percentage "0.5%" or a fraction "0.005", to a millionth
///   delay=RATE:DURATION                      "1%:200us"
///   late_dma=DURATION                        "2ms"
///   gpu_write_late=DURATION
///   seed=NUMBER
///   opcode=NAME                              WRITE_LAST_IMM, ACK, ...: only these; several select several
/// @throws Error that names the item, what is wrong with it and what is allowed.
[[nodiscard]] FaultConfig parse_faults(std::string_view text);

/// The text that parses to `config`, canonical: for the line that says that faults are on.
[[nodiscard]] std::string to_string(const FaultConfig& config);

/// What happens to one packet.
struct FaultVerdict {
  bool drop = false;
  bool duplicate = false;
  bool congestion = false;
  bool corrupt = false;
  std::uint32_t corrupt_entropy = 0;  ///< which bit
  std::uint32_t overtaken_by = 0;     ///< not 0: leaves after so many later packets, at the latest after `hold`
  Ps hold = 0;                        ///< 0: leaves now
};

/// The fate of packet `index` of a link. Every fault draws from its own stream, so turning one on does not move where
/// another one strikes.
[[nodiscard]] FaultVerdict judge(const FaultConfig& config, std::uint64_t index, wire::Opcode opcode) noexcept;

/// How much later than it could have packet `index` of those that have a source in memory is read and leaves: any time
/// up to config.late_dma.
[[nodiscard]] Ps late_by(const FaultConfig& config, std::uint64_t index) noexcept;

struct FaultCounters {
  std::uint64_t packets = 0, dropped = 0, duplicated = 0, reordered = 0, delayed = 0, corrupted = 0, marked = 0;
  std::uint64_t not_held = 0;  ///< should have left later, but kCapacity others were waiting already
};

/// Called with the Shard's lock held, as its link is.
class FaultInjector {
 public:
  /// Most packets that wait for their time.
  static constexpr std::size_t kCapacity = 1024;

  explicit FaultInjector(const FaultConfig& config);

  /// Null when TENSORWIRE_FAULTS is not set. @throws Error on text that parse_faults() does not understand.
  [[nodiscard]] static std::unique_ptr<FaultInjector> from_environment();

  /// A finished packet: what leaves now goes to `sink` before this returns, copies are kept of what leaves later.
  void outgoing(const OutPacket& packet, Ps now, PacketSink& sink) noexcept;
  /// When fire() has something to send; kNever when nothing waits.
  [[nodiscard]] Ps next_deadline() const noexcept;
  /// Sends what is due, oldest first.
  void fire(Ps now, PacketSink& sink) noexcept;

  [[nodiscard]] const FaultConfig& config() const noexcept { return config_; }
  [[nodiscard]] const FaultCounters& counters() const noexcept { return counters_; }

 private:
  struct Held {
    Ps deadline = 0;
    std::uint64_t after_index = 0;  ///< due too when this packet has gone
    OutPacket packet;               ///< its bytes are in `bytes`
    std::vector<std::byte> bytes;
  };

  [[nodiscard]] std::span<const std::byte> corrupted(std::span<const std::byte> bytes, std::uint32_t entropy) noexcept;
  [[nodiscard]] bool hold(const OutPacket& packet, const FaultVerdict& verdict, Ps now) noexcept;

  FaultConfig config_;
  FaultCounters counters_;
  std::uint64_t index_ = 0;                         ///< of the next packet
  std::vector<Held> held_;                          ///< in the order in which they came
  std::vector<std::vector<std::byte>> free_bytes_;  ///< buffers of packets that have left
  std::vector<std::byte> scratch_;
};

}  // namespace tensorwire::softhca
