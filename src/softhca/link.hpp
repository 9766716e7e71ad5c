// The interface between the progress loop (Shard) and a link: the thing that carries packets of paths to peers. Two
// links exist: UdpLink (RoCEv2 datagrams) and LocalLink (shared-memory ring between processes of one host).
//
// Threads. A Shard has one lock. Unless a function says otherwise it is called with that lock held, by whichever thread
// makes progress (the engine thread, or the application inside poll_cq and post_send). Links own their descriptors and
// buffers; the Shard owns links and the engine.
//
// How the same-host link plugs in (local_link.hpp, class LocalLink final : public Link):
//   - LocalLink(LinkHost& host) is made once per Hca, unless a capture, faults or packets were asked for.
//   - The Hca owns the rendezvous listener (AF_UNIX SOCK_SEQPACKET, see address_claim.hpp) and hands each accepted
//     connection (non-blocking, CLOEXEC) to `void LocalLink::adopt(UniqueFd)`: engine thread, lock held, must not
//     block. Where there is no LocalLink the connection is closed at once: the connecting side sees EOF and takes
//     packets.
//   - At RTR of a queue pair `PathChoice LocalLink::path_to(local GID, peer)` is called by the application's
//     thread WITHOUT the lock; it may block for at most a second in all (the peer's engine thread answers even while
//     the peer's application itself sits in path_to). It returns the path, made by host.run_locked([&]{
//     engine.create_path({ .window_bytes = ..., .whole_messages = true }) }), or why packets must be taken. One path
//     per peer, made once.
//   - The ring must have room for kMaxTxBatch descriptors whenever its path is unblocked: a link that may run short
//     calls engine.set_path_blocked(path, true) beforehand, and false when the peer made room.
//   - A peer that died (EOF on its connection) ends with packets into nothing: retries run out as on a cable.
//
// How faults plug in (faults.hpp, class FaultInjector; only UdpLink asks it; no injector means no cost):
//   - static std::unique_ptr<FaultInjector> FaultInjector::from_environment(): null when TENSORWIRE_FAULTS is not set;
//     throws Error on text it does not understand.
//   - void outgoing(const OutPacket& packet, Ps now, PacketSink& sink) noexcept: each finished packet goes through here
//     instead of onto the socket; the injector calls sink.send_packet() for what leaves now (none, one, several, with
//     changed bytes or ToS) and keeps copies of what leaves later.
//   - Ps next_deadline() const noexcept; void fire(Ps now, PacketSink& sink) noexcept: delayed packets leave.
//   - class LateDma (late_dma.hpp) keeps descriptors, not packets: their sources are read when they leave.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/time.hpp"
#include "softhca/process_slot.hpp"
#include "transport/engine.hpp"

namespace tensorwire::softhca {

class StagedMemory;

/// The most descriptors that one Link::transmit() call is given.
inline constexpr std::size_t kMaxTxBatch = 64;

class Link {
 public:
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  /// Takes what has arrived through Engine::classify() and commit(). Returns how many packets it took; stops after a
  /// bounded amount of work and then returns with `more` true.
  virtual std::size_t receive(Ps now, bool& more) noexcept = 0;

  /// Sends descriptors that next_tx() gave, all of one path of this link. Everything is taken: what the socket refuses
  /// for the moment waits inside the link, which then says !can_send().
  virtual void transmit(std::span<const transport::TxDesc> descs, Ps now) noexcept = 0;

  /// False while something waits inside the link: nothing may be pulled from the engine until flush() made it true.
  [[nodiscard]] virtual bool can_send() const noexcept { return true; }
  virtual void flush(Ps /*now*/) noexcept {}

  /// When on_timer() has something to do; kNever when nothing waits. Asked after every pass.
  [[nodiscard]] virtual Ps next_deadline() const noexcept { return kNever; }
  virtual void on_timer(Ps /*now*/) noexcept {}

  /// The engine thread is about to sleep. After this call whatever arrives must wake a descriptor that it watches.
  /// Returns false when something has arrived already: do not sleep.
  virtual bool prepare_sleep() noexcept { return true; }
  /// The engine thread is awake, or leaves the work to an application that polls: arrivals need wake nobody.
  virtual void end_sleep() noexcept {}

  /// From now on there is memory of GPUs, which takes more than MemoryOps alone (gpu/staged_memory.hpp).
  virtual void use(StagedMemory& /*staged*/) noexcept {}

  /// Counters of this link are added to `out` by name.
  using CounterSink = std::function<void(const char* name, std::uint64_t value)>;
  virtual void visit_counters(const CounterSink& /*sink*/) const {}
};

/// Where the Hca stands.
struct HostAddress {
  std::uint32_t ipv4 = 0;  ///< host order: the address that is claimed
  std::uint8_t slot = 0;
  bool shared = false;      ///< other processes have other slots of the address
  int interface_index = 0;  ///< what link-local addresses are relative to
};

/// What a link may ask of the Shard that owns it.
class LinkHost {
 public:
  virtual ~LinkHost() = default;
  [[nodiscard]] virtual transport::Engine& engine() noexcept = 0;  ///< lock held
  [[nodiscard]] virtual const HostAddress& address() const noexcept = 0;
  virtual void run_locked(const std::function<void()>& body) = 0;  ///< set-up only; lock NOT held by the caller
  virtual void bind_path(transport::PathId path, Link& link) = 0;  ///< lock held: descriptors of path go to link
  virtual void watch(int fd) = 0;  ///< engine thread makes a pass when fd is readable (level-triggered)
  virtual void unwatch(int fd) noexcept = 0;
};

/// How a queue pair's packets will travel.
struct PathChoice {
  std::optional<transport::PathId> path;
  std::string why_not;  ///< when there is no path: "ptrace policy forbids it", "peer is another user's process"
};

/// One finished RoCEv2 datagram on its way out: UDP payload with its ICRC.
struct OutPacket {
  std::span<const std::byte> bytes;
  wire::Gid source = {};
  wire::Gid destination = {};  ///< port is 4791
  std::uint32_t source_qpn = 0;
  std::uint16_t source_port = 0;
  std::uint8_t tos = 0;
  std::uint8_t ttl = 64;
  std::uint32_t flow_label = 0;  ///< IPv6 only
};

/// Where packets really leave.
class PacketSink {
 public:
  virtual ~PacketSink() = default;
  virtual void send_packet(const OutPacket& packet) noexcept = 0;
};

}  // namespace tensorwire::softhca
