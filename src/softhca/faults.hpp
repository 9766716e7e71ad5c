// Fault injection on outgoing packets, asked for by TENSORWIRE_FAULTS or by API: what to inject (FaultConfig, one
// grammar), the judge that decides for each packet (FaultInjector, sans-I/O, no clock), and the bounded queue of
// packets that leave later (HeldPackets). The UDP link owns one of each; with faults on, its packets go singly.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/time.hpp"
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
  Ps late_dma = 0;  ///< not 0: every packet leaves so much later, and its source is read only then
  std::uint64_t seed = 1;
  std::bitset<256> opcodes = std::bitset<256>().set();  ///< by opcode byte

  bool operator==(const FaultConfig&) const = default;
  /// True when some packet may be touched.
  [[nodiscard]] bool any() const noexcept;
};

inline constexpr std::uint32_t kMaxOvertaking = 4;
inline constexpr Ps kReorderBound = 200 * kMicrosecond;

/// Items separated by commas, spaces around them allowed, each word at most once except opcode:
///   drop= dup= reorder= corrupt= ce=  RATE            a percentage "0.5%", or a fraction "0.005"
///   delay=RATE:DURATION, late_dma=DURATION            "1%:200us", "2ms"
///   seed=NUMBER, opcode=NAME                          WRITE_LAST_IMM, ACK, ...; several select several
/// @throws Error that names the item, what is wrong with it and the words that are allowed.
[[nodiscard]] FaultConfig parse_faults(std::string_view text);

/// parse_faults() of TENSORWIRE_FAULTS; nothing when it is unset.
[[nodiscard]] std::optional<FaultConfig> faults_from_environment();

/// The text that parses to `config`, canonical: for the line that says that faults are on.
[[nodiscard]] std::string to_string(const FaultConfig& config);

/// What happens to one packet. Either it is dropped, or `copies` of it leave.
struct FaultVerdict {
  bool drop = false;
  bool mark_congestion = false;
  bool corrupt = false;
  bool late_read = false;             ///< read the source when the packet leaves, not now
  std::uint8_t copies = 1;            ///< 2: it is sent twice
  std::uint32_t overtaken_by = 0;     ///< reorder: leave after so many later packets, at the latest after `hold`
  Ps hold = 0;                        ///< 0: leaves now
  std::uint32_t corrupt_entropy = 0;  ///< see corrupt()
};

/// Decides by seed and packet index alone: the n-th packet meets the same fate in every run, and turning one fault on
/// does not move where another one strikes.
class FaultInjector {
 public:
  explicit FaultInjector(const FaultConfig& config) noexcept : config_(config) {}

  [[nodiscard]] FaultVerdict decide(wire::Opcode opcode) noexcept;
  [[nodiscard]] const FaultConfig& config() const noexcept { return config_; }
  [[nodiscard]] std::uint64_t packets() const noexcept { return index_; }

 private:
  [[nodiscard]] std::uint64_t draw(std::uint64_t fault) const noexcept;

  FaultConfig config_;
  std::uint64_t index_ = 0;
};

/// Flips one bit of a whole UDP payload, chosen by verdict.corrupt_entropy.
void corrupt(std::span<std::byte> udp_payload, std::uint32_t entropy) noexcept;

/// Packets that leave later, bounded: Packet is whatever the link needs to send one. A packet is due when its time has
/// come or when enough later packets have passed it. Among due packets the order of insertion holds.
template <class Packet>
class HeldPackets {
 public:
  explicit HeldPackets(std::size_t capacity) : capacity_(capacity) {}

  [[nodiscard]] bool full() const noexcept { return held_.size() == capacity_; }
  [[nodiscard]] std::size_t size() const noexcept { return held_.size(); }
  /// A full queue takes no packet: the caller stops pulling from the engine while full().
  bool hold(Packet packet, const FaultVerdict& verdict, Ps now) {
    if (full()) return false;
    const std::uint64_t passed = verdict.overtaken_by != 0 ? passed_ + verdict.overtaken_by : UINT64_MAX;
    held_.push_back({now + verdict.hold, passed, std::move(packet)});
    return true;
  }
  /// A packet left without being held: it overtook those that are.
  void overtaken() noexcept { ++passed_; }
  /// The next packet that is due, if any.
  std::optional<Packet> take_due(Ps now) {
    for (auto it = held_.begin(); it != held_.end(); ++it) {
      if (it->deadline > now && it->passed > passed_) continue;
      std::optional<Packet> packet(std::move(it->packet));
      held_.erase(it);
      return packet;
    }
    return std::nullopt;
  }
  [[nodiscard]] Ps next_deadline() const noexcept {
    Ps first = kNever;
    for (const Held& h : held_) first = std::min(first, h.passed <= passed_ ? 0 : h.deadline);
    return first;
  }

 private:
  struct Held {
    Ps deadline;
    std::uint64_t passed;  ///< due when passed_ reaches it
    Packet packet;
  };
  std::size_t capacity_;
  std::uint64_t passed_ = 0;
  std::deque<Held> held_;
};

}  // namespace tensorwire::softhca
