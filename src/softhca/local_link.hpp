// The same-host link: the way between two HCAs of one host that leaves the packets out. Same engine, one record per
// message, no ICRC; headers and piece descriptors go through a shared-memory ring, small payloads inside it, and larger
// ones are pulled by the responder (process_vm_readv) after its own checks. READ responses go through the ring as
// bytes, cut by the path MTU like packets: nobody acknowledges them, so a pull could come when their source is
// something else.
//
// A channel is directed, from one HCA to another, and made by its sender when a first queue pair towards that peer goes
// to RTR. The Shard owns the LocalLink and the listener whose connections it hands to adopt().
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/time.hpp"
#include "base/unique_fd.hpp"
#include "softhca/link.hpp"
#include "softhca/local_counters.hpp"

namespace tensorwire::softhca {

struct LocalLinkConfig {
  Ps handshake_bound = 500 * kMillisecond;  ///< how long path_to() waits for the peer's answer
  std::uint32_t inline_bytes = 4096;        ///< payloads up to this size travel inside the ring
  std::uint64_t window_bytes = 1ULL << 30;  ///< of a path: nothing is lost here, so the ring is the real limit
};

class LocalLink final : public Link {
 public:
  explicit LocalLink(LinkHost& host, const LocalLinkConfig& config = {});
  /// Closes every channel; the peers see it.
  ~LocalLink() override;

  /// A connection that the listener of our address accepted (non-blocking). Engine thread, lock held; does not block.
  void adopt(UniqueFd connection);

  /// After fork, in the child: the channels are the parent's, and its peers must see when it ends.
  void close_sockets() noexcept;

  /// The path from our address `local` to `peer`, whose Hca has claimed `peer_ipv4`; or why its packets must be RoCEv2
  /// packets. Application's thread, without the lock, which is taken inside: the peer answers from its progress loop
  /// while its application may sit in the same call towards us. Takes at most `handshake_bound`; a live channel is
  /// found at once.
  [[nodiscard]] PathChoice path_to(const wire::Gid& local, const ProcessAddress& peer, std::uint32_t peer_ipv4);

  std::size_t receive(Ps now, bool& more) noexcept override;
  void transmit(std::span<const transport::TxDesc> descs, Ps now) noexcept override;
  void use(StagedMemory& staged) noexcept override;
  bool prepare_sleep() noexcept override;
  void end_sleep() noexcept override;
  void visit_counters(const CounterSink& sink) const override;

  [[nodiscard]] const LocalLinkCounters& counters() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tensorwire::softhca
