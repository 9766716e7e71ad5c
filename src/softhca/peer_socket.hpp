// The knock at a peer HCA's door: the message by which a sender offers a ring (a Greeting with three descriptors), how
// it travels, and the checks that decide whether its receiver may pull from the sender's memory.
//
// The socket stays open as long as the channel: its hang-up is how either end learns that the other one is gone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"
#include "wire/gid.hpp"

namespace tensorwire::softhca {

/// Changes with the layout of Greeting, RingLayout or the records in it.
inline constexpr std::uint32_t kLocalProtocolVersion = 2;

/// Where a process stands: two processes with equal namespaces and boot ids mean the same thing by a process id.
struct HostIdentity {
  std::uint32_t pid = 0;
  std::uint64_t pid_namespace = 0;  ///< inode of /proc/self/ns/pid; 0 where /proc does not say
  std::array<std::byte, 16> boot_id{};
};
/// Of this process. Reads /proc.
[[nodiscard]] HostIdentity own_identity();

/// A word in the sender's memory that the receiver reads back with every pull: proof that the memory it reads is still
/// that of the process which made the offer, whatever has become of the process id.
struct ProbeWord {
  std::uint64_t address = 0;
  std::uint64_t value = 0;
};

struct Greeting {
  static constexpr std::size_t kBytes = 88;
  std::uint32_t version = kLocalProtocolVersion;
  HostIdentity sender;
  wire::Gid address;  ///< the sender's own
  std::uint32_t ring_slots = 0;
  std::uint32_t slot_data_bytes = 0;
  ProbeWord probe;
  std::uint64_t withdrawals = 0;  ///< address of the sender's transport::Withdrawals
};
[[nodiscard]] std::array<std::byte, Greeting::kBytes> encode(const Greeting& greeting) noexcept;
/// Nothing when the magic or the length is wrong. With another version only `version` is read.
[[nodiscard]] std::optional<Greeting> decode_greeting(std::span<const std::byte> bytes) noexcept;

/// Why a receiver refuses a ring; the number travels in RingLayout::reason.
enum class Refusal : std::uint32_t {
  kNone = 0,
  kOtherVersion,
  kOtherUser,
  kOtherPidNamespace,
  kOtherHost,
  kWrongProcessId,
  kWrongGeometry,
  kPtracePolicy,
  kWrongProbe,
  kBadAddress,
  kTooManyChannels,
};
/// One clause, with what to do about it where something can be done. Any number is allowed: it comes from a peer.
[[nodiscard]] std::string_view text(Refusal refusal) noexcept;

/// What came through the door of a peer's HCA.
struct Offer {
  Greeting greeting;
  std::uint32_t pid = 0;  ///< of the sender, as the kernel says; 0 when it is not visible from here
  std::uint32_t uid = 0;
  UniqueFd memory;         ///< of the ring
  UniqueFd wake_consumer;  ///< eventfd
  UniqueFd wake_producer;  ///< eventfd
};

struct ConnectResult {
  UniqueFd socket;
  int error = 0;  ///< errno when there is no socket; ECONNREFUSED: nobody listens, the peer is not on this host
};
/// Connects to the HCA in `slot` of `ipv4` in this network namespace, within `bound_ms`. A listener of another user is
/// EACCES.
[[nodiscard]] ConnectResult connect_to_peer(std::uint32_t ipv4, std::uint8_t slot, int bound_ms);

/// Sends `greeting` with the ring's descriptors. Returns 0 or errno; never blocks.
[[nodiscard]] int send_offer(int socket, const Greeting& greeting, int memory, int wake_consumer,
                             int wake_producer) noexcept;

enum class OfferStatus : std::uint8_t { kOk, kNotYet, kClosed, kMalformed };
/// Reads an offer from an accepted, non-blocking connection. Descriptors that do not belong are closed.
[[nodiscard]] OfferStatus receive_offer(int socket, Offer& out) noexcept;

/// All checks of an offer but the ring's own: version, user, namespaces, geometry, and whether the kernel lets us read
/// the probe word in the sender's memory and what we find there.
[[nodiscard]] Refusal check_offer(const Offer& offer, const HostIdentity& own) noexcept;

}  // namespace tensorwire::softhca
