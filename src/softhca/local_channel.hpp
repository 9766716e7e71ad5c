// The two ends of a channel of the same-host link. OutgoingChannel turns descriptors into records; IncomingChannel
// takes records through the engine and pulls their payload. LocalLink owns both; every method needs the engine's lock
// except where it says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/time.hpp"
#include "softhca/local_counters.hpp"
#include "softhca/local_record.hpp"
#include "softhca/peer_socket.hpp"
#include "softhca/remote_pull.hpp"
#include "softhca/shm_ring.hpp"
#include "transport/engine.hpp"

namespace tensorwire::softhca {

class StagedMemory;

/// The descriptors that both ends of a channel hold.
struct ChannelFds {
  UniqueFd socket;         ///< none on the channel of an HCA to itself
  UniqueFd wake_consumer;  ///< eventfds: there is a record; there is room
  UniqueFd wake_producer;

  /// New eventfds, no socket. @throws Error when there are no descriptors left.
  [[nodiscard]] static ChannelFds make();
  [[nodiscard]] ChannelFds duplicate() const;
};

class OutgoingChannel {
 public:
  struct Made {
    std::unique_ptr<OutgoingChannel> channel;
    std::string why_not;       ///< one clause, when there is no channel
    bool peer_on_host = true;  ///< false: nobody listens there, so there is nothing to explain
  };
  /// Any thread, without the lock. Offers a ring to the HCA in `slot` of `peer_ipv4` and waits at most `bound` for its
  /// answer.
  /// @throws Error when this process has no memory or descriptors for a ring.
  [[nodiscard]] static Made offer(std::uint32_t peer_ipv4, std::uint8_t slot, const wire::Gid& own_address,
                                  const ProbeWord& probe, std::uint64_t withdrawals, Ps bound);

  OutgoingChannel(RingMemory memory, ChannelFds fds) noexcept : ring_(std::move(memory)), fds_(std::move(fds)) {}

  /// Sends what next_tx() gave. Payloads up to `inline_bytes` are copied into the ring; where a source is gone its work
  /// request is failed. On a dead channel everything vanishes.
  void send(transport::Engine& engine, std::span<const transport::TxDesc> descs, std::uint32_t inline_bytes, Ps now,
            LocalLinkCounters& counters) noexcept;
  /// True when `slots` more records fit, or vanish.
  [[nodiscard]] bool has_room(std::uint32_t slots) noexcept;

  /// The peer is gone.
  void kill() noexcept { alive_ = false; }
  [[nodiscard]] bool alive() const noexcept { return alive_; }

  /// Only so that the peer sees when the other process that shares them ends.
  void close_descriptors() noexcept { fds_ = {}; }

  [[nodiscard]] RingProducer& ring() noexcept { return ring_; }
  [[nodiscard]] const ChannelFds& fds() const noexcept { return fds_; }

 private:
  [[nodiscard]] bool write_record(const transport::TxDesc& desc, std::uint32_t inline_bytes) noexcept;

  RingProducer ring_;
  ChannelFds fds_;
  bool alive_ = true;
};

/// What one IncomingChannel::receive() does at most: other channels and the senders of this HCA wait meanwhile.
struct ReceiveBudget {
  std::size_t records = 32;
  std::uint64_t pull_bytes = 1ULL << 20;
};

class IncomingChannel {
 public:
  IncomingChannel(RingMemory memory, ChannelFds fds, const PullSource& peer, const wire::Gid& peer_address) noexcept;

  /// Takes records through classify(), copy and commit(), and says how many. Stops when `budget` is spent, in the
  /// middle of a long message if need be; ring().empty() is false then. `staged` is null where there is no memory of
  /// GPUs.
  std::size_t receive(transport::Engine& engine, Ps now, LocalLinkCounters& counters, ReceiveBudget budget = {},
                      StagedMemory* staged = nullptr) noexcept;

  /// The peer is gone: nothing will be added. What it wrote before is still taken.
  void hang_up() noexcept { hung_up_ = true; }
  /// Nothing will come from here any more.
  [[nodiscard]] bool finished() const noexcept { return !broken_.empty() || (hung_up_ && ring_.empty()); }
  /// Why nothing more is taken although the peer has not hung up: one clause, or empty.
  [[nodiscard]] std::string_view why_broken() const noexcept { return broken_; }
  [[nodiscard]] const wire::Gid& peer_address() const noexcept { return source_.address; }

  void close_descriptors() noexcept { fds_ = {}; }

  [[nodiscard]] RingConsumer& ring() noexcept { return ring_; }
  [[nodiscard]] const ChannelFds& fds() const noexcept { return fds_; }

 private:
  enum class Step : std::uint8_t { kDone, kUnfinished };
  [[nodiscard]] Step take_record(transport::Engine& engine, Ps now, std::uint64_t& pull_budget,
                                 LocalLinkCounters& counters) noexcept;
  [[nodiscard]] Step place(transport::Engine& engine, const transport::RxVerdict& verdict, Ps now,
                           std::uint64_t& pull_budget, LocalLinkCounters& counters) noexcept;
  [[nodiscard]] PullStatus pull_some(const transport::RxVerdict& verdict, std::uint64_t bytes) noexcept;
  [[nodiscard]] bool place_inline(const transport::RxVerdict& verdict) noexcept;
  void commit(transport::Engine& engine, const transport::RxVerdict& verdict, Ps now) noexcept;

  RingConsumer ring_;
  ChannelFds fds_;
  PullSource peer_;
  transport::PacketSource source_;
  LocalRecord record_;        ///< of the front slot, once decoded
  bool decoded_ = false;      ///< record_ is valid: its pulling began in an earlier call
  std::uint64_t pulled_ = 0;  ///< bytes of record_ that are in place
  std::uint64_t life_ = 0;    ///< of the queue pair for which they were pulled
  bool hung_up_ = false;
  StagedMemory* staged_ = nullptr;
  std::string_view broken_;
};

/// Makes `fd`, an eventfd, readable.
void wake(const UniqueFd& fd) noexcept;

}  // namespace tensorwire::softhca
