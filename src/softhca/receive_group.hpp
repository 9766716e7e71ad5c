// How a packet finds its process where several share an address. Their sockets of one address and port 4791 are a
// SO_REUSEPORT group, and a classic BPF program picks the socket: it reads the slot of the destination QPN
// (process_slot.hpp) and answers with the socket's index in the group. No privilege is needed.
//
// The kernel counts indices in the order of binding, moves the last socket into the place of one that closes, and tells
// nobody. So a member asks: a *probe* is a datagram to our own address which the program sends to the index that stands
// in it, whoever that is; its receiver answers the asker (neighbours.hpp) with its slot. With all answers the asker
// writes a new program for the whole group. Until then, and where an answer stays out, packets land at a wrong member:
// a *stray*, which that member passes on to its owner, and which makes it ask. No shared memory, no coordinator: a
// member that dies in the midst of it leaves at worst a few strays.
//
// Pure bookkeeping: UdpLink does the sending and owns the socket.
#pragma once

#include <linux/filter.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/time.hpp"
#include "softhca/process_slot.hpp"

namespace tensorwire::softhca {

/// In the range that the IB specification leaves to manufacturers, as the hello is.
inline constexpr std::byte kProbeOpcode{0xc2};
inline constexpr std::size_t kProbeBytes = 16;

/// Which member stands at `index` of the group?
struct Probe {
  std::uint8_t index = 0;
  std::uint8_t asker = 0;  ///< slot
  std::uint32_t round = 0;
};
[[nodiscard]] std::array<std::byte, kProbeBytes> encode_probe(const Probe& probe) noexcept;
[[nodiscard]] std::optional<Probe> parse_probe(std::span<const std::byte> udp_payload) noexcept;

/// The place of each slot in the group; nothing where unknown.
using Places = std::array<std::optional<std::uint8_t>, kHighestSlot + 1>;

/// The program: a probe goes to the index it names, a packet to the place of its slot, what has none to a socket that
/// the kernel's hash chooses.
[[nodiscard]] std::vector<sock_filter> dispatch_program(const Places& places);
/// Makes it the program of the group that `socket` is in. Returns 0 or errno.
[[nodiscard]] int attach(int socket, std::span<const sock_filter> program) noexcept;

/// What one member knows of its group, and when it asks anew.
class ReceiveGroup {
 public:
  /// How long answers may take before a program is written without them.
  static constexpr Ps kPatience = 2 * kMillisecond;
  /// A stray makes a member ask at most so often; longer, up to the last, while asking changes nothing.
  static constexpr Ps kShortestPause = 5 * kMillisecond;
  static constexpr Ps kLongestPause = kSecond;

  /// Opens a round: the caller sends probes with the number returned, to every index that `members` may have.
  std::uint32_t ask(std::size_t members, Ps now) noexcept;
  /// An answer. The first index that a member tells is its own: probes beyond the end of the group land anywhere, and
  /// are sent last. True when the program shall be written now.
  [[nodiscard]] bool on_answer(std::uint32_t round, std::uint8_t slot, std::uint8_t index, Ps now) noexcept;
  /// We got what belongs to another member.
  void on_stray(Ps now) noexcept;

  /// What shall happen at `now`.
  enum class Due : std::uint8_t { kNothing, kWrite, kAsk };
  [[nodiscard]] Due due(Ps now) const noexcept;
  [[nodiscard]] Ps next_deadline() const noexcept { return write_at_ < ask_at_ ? write_at_ : ask_at_; }

  /// The places as of now, for the program; the caller writes it.
  const Places& write(Ps now) noexcept;

 private:
  Places places_;   ///< of the last program that we wrote
  Places answers_;  ///< of this round
  std::uint32_t round_ = 0;
  std::size_t missing_ = 0;  ///< answers expected in this round
  Ps write_at_ = kNever;
  Ps ask_at_ = kNever;
  Ps next_ask_ = 0;
  bool newcomer_ = true;  ///< no program of ours yet
  Ps pause_ = kShortestPause;
};

}  // namespace tensorwire::softhca
