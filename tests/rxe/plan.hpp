// What a session transfers. Both sides are given the same settings; the n-th operation and every byte it moves follow
// from the seed, so each side knows what must arrive without being told. Pure: no verbs, no sockets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tensorwire::rxe {

enum class Scenario : std::uint8_t { kReliable, kUnreliable, kDatagrams, kRefusal, kLeases };

enum class Kind : std::uint8_t { kSend, kSendImm, kWrite, kWriteImm, kRead, kFetchAdd, kCompareSwap, kEcho };
inline constexpr auto kKindNames = std::to_array<std::string_view>(
    {"send", "send_imm", "write", "write_imm", "read", "fetch_add", "cmp_swap", "echo"});

/// What the initiator asks for although the target must refuse it.
enum class Refusal : std::uint8_t { kWrongKey, kPastTheEnd, kReadOnly, kLongSend, kMisaligned, kNoWindow };
inline constexpr auto kRefusalNames =
    std::to_array<std::string_view>({"wrong_key", "past_the_end", "read_only", "long_send", "misaligned", "no_window"});

/// Sent from client to server as it lies in memory: both are the same program.
struct Settings {
  Scenario scenario = Scenario::kReliable;
  Refusal refusal = Refusal::kWrongKey;
  bool client_initiates = true;
  bool ipv6 = false;              ///< GIDs of unique local IPv6 addresses (fd..) instead of the IPv4 ones
  bool late_receives = false;     ///< the target posts its first receives when the initiator has long sent
  bool loss = false;              ///< packets are being dropped: what nobody acknowledges may be asked for again
  std::uint8_t ack_timeout = 15;  ///< as ibv_qp_attr::timeout
  std::uint32_t kinds = 0;        ///< bit mask of Kind
  std::uint32_t count = 1000;
  std::uint32_t window = 8;  ///< operations in flight, at most kSlots
  std::uint32_t path_mtu = 1024;
  std::uint64_t seed = 1;
};

inline constexpr std::uint32_t kSlots = 8;
inline constexpr std::uint32_t kMaxLength = 1U << 20;
inline constexpr std::uint32_t kMargin = 16;  ///< bytes before and behind a message that must stay as they were
inline constexpr std::uint32_t kShifts = 64;  ///< messages begin at any of so many offsets
inline constexpr std::uint32_t kSlotBytes = kMargin + kShifts + kMaxLength + kMargin;
inline constexpr std::uint32_t kPatternBytes = kMaxLength + (1U << 16);
inline constexpr std::uint32_t kWords = 8;  ///< targets of atomics

struct Operation {
  Kind kind = Kind::kSend;
  bool inline_data = false;
  std::uint8_t pieces = 1;       ///< scatter/gather entries at the initiator
  std::uint32_t length = 0;      ///< bytes; 8 for atomics
  std::uint32_t from = 0;        ///< the content is the pattern from here on
  std::uint32_t reply_from = 0;  ///< the content of an echo's reply
  std::uint32_t to = 0;          ///< where in the slot it begins
  std::uint32_t immediate = 0;
  std::uint32_t word = 0;     ///< of an atomic
  std::uint64_t operand = 0;  ///< added, or swapped in
  std::uint64_t compare = 0;
};

/// True when the target learns of it by a receive completion (a plain WRITE by the empty SEND that follows it).
[[nodiscard]] constexpr bool has_arrival(Kind kind) noexcept {
  return kind != Kind::kRead && kind != Kind::kFetchAdd && kind != Kind::kCompareSwap;
}

[[nodiscard]] Operation operation(const Settings& settings, std::uint32_t index);
[[nodiscard]] std::vector<std::byte> pattern(std::uint64_t seed);

/// The words that atomics act on, as they must be.
class AtomicModel {
 public:
  /// The old value that `operation` must return. Half of the compares are made to hit.
  std::uint64_t apply(Operation& operation) noexcept;
  [[nodiscard]] std::span<const std::uint64_t> words() const noexcept { return words_; }

 private:
  std::array<std::uint64_t, kWords> words_{};
};

}  // namespace tensorwire::rxe
