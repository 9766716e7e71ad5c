// The same-host link: the way between two HCAs of one host that leaves the packets out. Same engine, one record per
// message, no ICRC; headers and piece descriptors go through a shared-memory ring, small payloads inside it, and larger
// ones are pulled by the responder (process_vm_readv) after its own checks.
//
// A channel is directed, from one HCA to another; its sender makes it at RTR (connect). The owner of a LocalLink is the
// HCA's progress loop. Except for connect(), every method needs the engine's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/time.hpp"
#include "transport/engine.hpp"
#include "wire/gid.hpp"

namespace tensorwire::softhca {

struct LocalLinkConfig {
  wire::Gid address;                        ///< ours; the name under which peers on this host find us
  Ps handshake_bound = 500 * kMillisecond;  ///< how long connect() waits for the peer's answer
  std::uint32_t inline_bytes = 4096;        ///< payloads up to this size travel inside the ring
  std::uint64_t window_bytes = 1ULL << 30;  ///< of a path: nothing is lost here, so the ring is the real limit
};

struct LocalLinkCounters {
  std::uint64_t tx_records = 0, rx_records = 0;
  std::uint64_t inline_bytes = 0, pulled_bytes = 0;     ///< received payload, by the way it came
  std::uint64_t malformed = 0;                          ///< records that a correct peer does not write
  std::uint64_t wakeups = 0;                            ///< system calls made to wake a sleeping peer
  std::uint64_t accepted = 0, refused = 0, closed = 0;  ///< incoming channels
};

class OutgoingChannel;

/// What connect() found: a channel, or why there is none.
struct LocalConnection {
  std::unique_ptr<OutgoingChannel> channel;
  bool peer_on_host = false;  ///< false: nobody listens at that address here, so packets are the only way
  std::string why_not;        ///< one clause for a log line or link_description(); empty with a channel

  LocalConnection();
  LocalConnection(LocalConnection&&) noexcept;
  LocalConnection& operator=(LocalConnection&&) noexcept;
  ~LocalConnection();
};

class LocalLink {
 public:
  /// Most descriptors that send() takes at once. A path is blocked as long as its ring could not take so many.
  static constexpr std::size_t kBatch = 32;

  /// Listens for peers at the abstract socket of `config.address` in this network namespace. @throws Error when another
  /// process holds that name.
  explicit LocalLink(const LocalLinkConfig& config);
  /// Closes every channel. The engine no longer uses their paths, or is destroyed first.
  ~LocalLink();
  LocalLink(const LocalLink&) = delete;
  LocalLink& operator=(const LocalLink&) = delete;

  // ---- set-up
  /// Without the engine's lock, any thread: the peer answers from its own progress loop, which may be doing the same
  /// towards us. Takes at most `handshake_bound`. Allocates; never throws for what a peer does.
  [[nodiscard]] LocalConnection connect(const wire::Gid& peer) const;
  /// The path of a live channel to `peer`, if there is one: no need to connect again.
  [[nodiscard]] std::optional<transport::PathId> find_path(const wire::Gid& peer) const noexcept;
  /// Makes a path of a connection (connection.channel is set); where another thread was faster, its path is returned.
  transport::PathId attach(transport::Engine& engine, LocalConnection connection);

  // ---- egress
  [[nodiscard]] bool owns(transport::PathId path) const noexcept;
  /// Sends what one next_tx() gave: at most kBatch descriptors, all of one path that owns() knows. Always takes all of
  /// them; on a channel whose peer is gone they vanish like packets to a dead host (the retry limit ends the queue
  /// pair). Blocks the path in the engine when the ring is nearly full.
  void send(transport::Engine& engine, std::span<const transport::TxDesc> batch, Ps now) noexcept;

  // ---- ingress
  /// One pass: handles listener and hang-ups when they are due, unblocks paths whose peer made room, then takes records
  /// from every incoming channel in turn through classify(), copy, commit(). Bounded work; returns how many records it
  /// took, so 0 means that there was nothing.
  std::size_t receive(transport::Engine& engine, Ps now) noexcept;

  // ---- sleeping
  /// Readable when anything of this link wants attention: put it into the set that the sleeper waits on.
  [[nodiscard]] int wait_fd() const noexcept;
  /// Tells the peers to wake us from now on. Returns false, and takes that back, when something is there already: do
  /// not sleep, make another pass.
  [[nodiscard]] bool prepare_sleep() noexcept;
  /// After the sleep, or when somebody polls again: peers need not wake us. Cheap when not prepared.
  void end_sleep() noexcept;

  [[nodiscard]] const LocalLinkCounters& counters() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tensorwire::softhca
