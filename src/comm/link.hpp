// What carries the runner's writes between ranks: RDMA (verbs_link.hpp), or anything else that can place bytes in a
// peer's scratch memory and then announce them; so the same plan runs over kernel TCP in the benchmark.
//
// A Link belongs to one communicator and is used by one thread at a time. Set-up throws; post_write, poll and wait are
// the data path: status only, no allocation in the steady state. The first failure is sticky.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/time.hpp"
#include "collective/runner.hpp"
#include "comm/observe/tally.hpp"

namespace tensorwire::bootstrap {
class Group;
}

namespace tensorwire::comm {

using collective::Piece;
using collective::WriteRequest;

enum class LinkEventKind : std::uint8_t {
  kArrival,  ///< all bytes of the peer's write are in the scratch memory, or where `in_place` says
  kSent,     ///< the source of the write with `token` is no longer needed
};

struct LinkEvent {
  LinkEventKind kind = LinkEventKind::kArrival;
  std::uint32_t peer = 0;
  std::uint32_t immediate = 0;        ///< kArrival
  std::uint64_t token = 0;            ///< kSent
  collective::InPlace in_place = {};  ///< kArrival
};

/// User memory that peers may write into.
struct UserOutput {
  std::uint32_t key = 0;            ///< as Piece::key
  collective::OutputWindow window;  ///< of its first byte
};

/// Why a link can no longer be used.
struct LinkFailure {
  std::uint32_t peer = 0;
  std::string line;          ///< operation, status, both ends, likely cause, what to do
  bool unreachable = false;  ///< nothing is wrong on this side: the peer does not answer
};

struct PeerStats {
  std::uint64_t messages_sent = 0, bytes_sent = 0;
  std::uint64_t messages_received = 0, bytes_received = 0;
};

/// A link's own count of them.
struct PeerTally {
  Tally messages_sent, bytes_sent, messages_received, bytes_received;

  [[nodiscard]] PeerStats read() const noexcept {
    return {messages_sent.get(), bytes_sent.get(), messages_received.get(), bytes_received.get()};
  }
};

/// What a link needs to know when it is made. The same on every rank but for `scratch` and `rank`.
struct LinkSetup {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  /// Peers write here, at WriteRequest::remote_offset from its start; send slots lie here too. Page-aligned. Outlives
  /// the link.
  std::span<std::byte> scratch;
  std::uint32_t depth = 2;          ///< of slots for each peer, in the order of ranks; send slots follow
  std::uint64_t slot_bytes = 0;     ///< header included
  std::uint32_t receive_depth = 0;  ///< messages that a peer may have under way to this rank at any time
  std::uint32_t send_depth = 0;     ///< writes to one peer that may be posted and not yet reclaimed
  bool may_block = false;           ///< wait() will be called: it should sleep, not spin
  int wake = -1;                    ///< wait() ends when this descriptor can be read, too; -1: none
  bool host_memory = true;          ///< users' buffers are memory that the CPU can read
};

class Link {
 public:
  virtual ~Link() = default;

  /// The key for pieces in the scratch memory.
  [[nodiscard]] virtual std::uint32_t scratch_key() const noexcept = 0;

  /// Makes user memory readable by post_write and returns its key for pieces. Cheap when the range is known already.
  /// @throws Error when the memory cannot be registered.
  [[nodiscard]] virtual std::uint32_t key_of(const void* address, std::size_t bytes) = 0;
  /// Whether peers can write into user memory (WriteRequest::to_output), where output_of allows it.
  [[nodiscard]] virtual bool has_windows() const noexcept { return false; }
  /// Makes user memory writable by peers, and readable by post_write. @throws Error when it cannot be registered.
  [[nodiscard]] virtual UserOutput output_of(void* address, std::size_t bytes);
  /// The caller is about to free or remap this range: registrations that overlap it go. No operation may use it.
  virtual void forget(const void* address, std::size_t bytes) noexcept = 0;

  /// Queues the write (never blocks): bytes of the pieces one after another at remote_offset, then the immediate.
  /// Writes to one peer may arrive in any order; an arrival is complete. False: failed, see failure().
  virtual bool post_write(const WriteRequest& request) noexcept = 0;

  /// Makes progress and takes events that are there; 0 when there are none. Negative: failed, see failure(). Before an
  /// arrival is returned, the link is ready for one more message of that peer.
  virtual int poll(std::span<LinkEvent> events) noexcept = 0;

  /// Asks a peer for a sign of life below its application, where the transport has one: a dead peer ends in failure()
  /// within the transport's retry limit even when nothing else is under way to it. Costs the peer nothing.
  virtual void probe(std::uint32_t /*peer*/) noexcept {}

  /// Takes what the device beneath has to tell (addresses and ports that come and go), and follows it.
  virtual void look_at_device() noexcept {}

  /// Whether arrivals may lie elsewhere than in their slots (LinkEvent::in_place).
  [[nodiscard]] virtual bool keeps_in_place() const noexcept { return false; }
  /// Whether what is written to this memory had better go past the caches (base/stream_copy.hpp).
  [[nodiscard]] virtual bool streams(const std::byte* /*to*/) const noexcept { return false; }

  /// Sleeps until an event may be there, or `bound` has passed. Spurious returns are fine.
  virtual void wait(Ps bound) noexcept = 0;

  /// The communicator failed: when this returns, no posted write reads user memory any more. Nothing else may be
  /// called afterwards but failure(), stats() and describe(). For links that read memory only inside their calls there
  /// is nothing to do.
  virtual void abandon() noexcept {}
  /// The communicator is over: as abandon(), and no peer can write here any more, whenever it tries. Only questions may
  /// follow.
  virtual void retire() noexcept { abandon(); }

  /// The first failure, or null.
  [[nodiscard]] virtual const LinkFailure* failure() const noexcept = 0;
  /// Any thread.
  [[nodiscard]] virtual PeerStats stats(std::uint32_t peer) const noexcept = 0;
  /// A counter of the device beneath by the name mlx5 uses ("port_xmit_packets"); nullopt where there is none. The
  /// whole device counts, other communicators of the process included: take differences. Any thread.
  [[nodiscard]] virtual std::optional<std::uint64_t> device_counter(std::string_view /*name*/) const {
    return std::nullopt;
  }
  /// How bytes travel to a peer: "same-host link", "RoCEv2 packets (asked for)", "kernel TCP 127.0.0.1:4000".
  [[nodiscard]] virtual std::string describe(std::uint32_t peer) const = 0;
  /// What the link runs over, for all peers: "soft0 port 1, GID 1 (::ffff:127.0.0.2), RoCE v2, MTU 4096".
  [[nodiscard]] virtual std::string describe_device() const { return {}; }
};

/// Makes the link of a communicator: a collective call, every rank of the group makes it at the same point.
/// @throws Error.
using LinkFactory = std::function<std::unique_ptr<Link>(bootstrap::Group&, const LinkSetup&)>;

}  // namespace tensorwire::comm
