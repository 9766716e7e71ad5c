#include "softhca/receive_group.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/bytes.hpp"

namespace tensorwire::softhca {

namespace {

// Offsets in a probe. The index stands where a BTH has the slot.
constexpr std::uint32_t kClaimMagic = 0x54775072;  // "TwPr"
constexpr std::size_t kAskerAt = 6;
constexpr std::size_t kClaimMagicAt = 8;
constexpr std::size_t kRoundAt = 12;

/// Beyond every index: the kernel then takes its hash.
constexpr std::uint32_t kByHash = 0xffff;

constexpr sock_filter load_byte(std::size_t offset) noexcept {
  return BPF_STMT(BPF_LD | BPF_B | BPF_ABS, static_cast<std::uint32_t>(offset));
}
/// Skips `unless` instructions where the accumulator is not `value`.
constexpr sock_filter skip_unless(std::uint32_t value, std::uint8_t unless) noexcept {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, unless);
}
constexpr sock_filter answer(std::uint32_t index) noexcept { return BPF_STMT(BPF_RET | BPF_K, index); }
constexpr sock_filter answer_accumulator() noexcept { return BPF_STMT(BPF_RET | BPF_A, 0); }

static_assert(2 * kSlots + 6 <= BPF_MAXINSNS);

}  // namespace

std::array<std::byte, kProbeBytes> encode_probe(const Probe& probe) noexcept {
  std::array<std::byte, kProbeBytes> bytes{};
  bytes[0] = kProbeOpcode;
  bytes[kBthSlotOffset] = std::byte{probe.index};
  bytes[kAskerAt] = std::byte{probe.asker};
  store_be32(&bytes[kClaimMagicAt], kClaimMagic);
  store_be32(&bytes[kRoundAt], probe.round);
  return bytes;
}

std::optional<Probe> parse_probe(std::span<const std::byte> udp_payload) noexcept {
  if (udp_payload.size() != kProbeBytes || udp_payload[0] != kProbeOpcode) return std::nullopt;
  if (load_be32(&udp_payload[kClaimMagicAt]) != kClaimMagic) return std::nullopt;
  return Probe{.index = std::to_integer<std::uint8_t>(udp_payload[kBthSlotOffset]),
               .asker = std::to_integer<std::uint8_t>(udp_payload[kAskerAt]),
               .round = load_be32(&udp_payload[kRoundAt])};
}

std::vector<sock_filter> dispatch_program(const Places& places) {
  std::vector<sock_filter> program{load_byte(0), skip_unless(std::to_integer<std::uint32_t>(kProbeOpcode), 2),
                                   load_byte(kBthSlotOffset), answer_accumulator(), load_byte(kBthSlotOffset)};
  for (std::size_t slot = kLowestSlot; slot <= kHighestSlot; ++slot) {
    if (!places[slot]) continue;
    program.push_back(skip_unless(static_cast<std::uint32_t>(slot), 1));
    program.push_back(answer(*places[slot]));
  }
  program.push_back(answer(kByHash));
  return program;
}

int attach(int socket, std::span<const sock_filter> program) noexcept {
  const sock_fprog whole{.len = static_cast<unsigned short>(program.size()),
                         .filter = const_cast<sock_filter*>(program.data())};
  return ::setsockopt(socket, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &whole, sizeof whole) == 0 ? 0 : errno;
}

std::uint32_t ReceiveGroup::ask(std::size_t members, Ps now) noexcept {
  answers_ = {};
  missing_ = members;
  write_at_ = now + kPatience;
  ask_at_ = kNever;
  next_ask_ = now + pause_;
  return ++round_;
}

bool ReceiveGroup::on_answer(std::uint32_t round, std::uint8_t slot, std::uint8_t index, Ps now) noexcept {
  if (round != round_ || answers_[slot]) return false;
  answers_[slot] = index;
  if (missing_ > 0) --missing_;
  // One that comes late, after the program was written without it, is reason for another one.
  if (missing_ == 0 || write_at_ == kNever) write_at_ = now;
  return write_at_ <= now;
}

void ReceiveGroup::on_stray(Ps now) noexcept {
  if (write_at_ == kNever && ask_at_ == kNever) ask_at_ = std::max(now, next_ask_);
}

ReceiveGroup::Due ReceiveGroup::due(Ps now) const noexcept {
  if (write_at_ <= now) return Due::kWrite;
  return ask_at_ <= now ? Due::kAsk : Due::kNothing;
}

/// Who did not answer keeps its place, unless somebody else stands there now.
const Places& ReceiveGroup::write(Ps now) noexcept {
  Places places = answers_;
  for (std::size_t slot = 0; slot < places.size(); ++slot) {
    if (!places[slot] && places_[slot] && std::ranges::find(answers_, places_[slot]) == answers_.end()) {
      places[slot] = places_[slot];
    }
  }
  pause_ = places == places_ ? std::min(2 * pause_, kLongestPause) : kShortestPause;
  next_ask_ = now + pause_;
  write_at_ = kNever;
  // The first round may have met members that were about to bind, and no program at all: a second one makes sure.
  if (std::exchange(newcomer_, false)) ask_at_ = next_ask_;
  places_ = places;
  return places_;
}

}  // namespace tensorwire::softhca
