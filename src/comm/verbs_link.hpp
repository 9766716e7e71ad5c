// The link over RDMA: k RC queue pairs for each peer, WRITE WITH IMMEDIATE into the peer's scratch memory, receive
// queues of zero-length work requests that are posted anew before the runner hears of the arrival, so that a
// receiver-not-ready NAK is a bug. Owns device context, queue pairs and registrations.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/link.hpp"
#include "comm/registration_cache.hpp"
#include "verbs/completion_queue.hpp"
#include "verbs/context.hpp"
#include "verbs/failure.hpp"
#include "verbs/queue_pair.hpp"
#include "verbs/roce_qp.hpp"

namespace tensorwire::comm {

struct VerbsLinkOptions {
  verbs::DeviceWish device;
  verbs::SameHostLink path = verbs::SameHostLink::kAuto;
  std::uint32_t queue_pairs_per_peer = 1;
  std::uint8_t dscp = 26;
};

class VerbsLink final : public Link {
 public:
  /// A collective call. @throws Error naming device, peer and cause.
  VerbsLink(bootstrap::Group& group, const LinkSetup& setup, const VerbsLinkOptions& options);

  [[nodiscard]] std::uint32_t scratch_key() const noexcept override { return scratch_region_.lkey(); }
  [[nodiscard]] std::uint32_t key_of(const void* address, std::size_t bytes) override;
  [[nodiscard]] bool has_windows() const noexcept override { return true; }
  [[nodiscard]] UserOutput output_of(void* address, std::size_t bytes) override;
  void forget(const void* address, std::size_t bytes) noexcept override;
  bool post_write(const WriteRequest& request) noexcept override;
  int poll(std::span<LinkEvent> events) noexcept override;
  void probe(std::uint32_t peer) noexcept override;
  void look_at_device() noexcept override;
  void wait(Ps bound) noexcept override;
  void abandon() noexcept override;
  void retire() noexcept override;
  [[nodiscard]] const LinkFailure* failure() const noexcept override { return failure_ ? &*failure_ : nullptr; }
  [[nodiscard]] PeerStats stats(std::uint32_t peer) const noexcept override { return peers_[peer].tally.read(); }
  [[nodiscard]] std::string describe(std::uint32_t peer) const override;
  [[nodiscard]] std::string describe_device() const override { return context_->describe(); }
  [[nodiscard]] std::optional<std::uint64_t> device_counter(std::string_view name) const override {
    return context_->counter(name);
  }
  /// The first one to another rank.
  [[nodiscard]] const verbs::QueuePair& queue_pair(std::uint32_t peer) const noexcept {
    return *lanes_[peers_[peer].first_lane].qp;
  }

 private:
  struct Lane {
    std::unique_ptr<verbs::QueuePair> qp;
    verbs::QpAddress remote;
    std::uint32_t peer = 0;
    std::uint32_t unsignaled = 0;        ///< posted since the last one that asked for a completion
    std::uint32_t receives_to_post = 0;  ///< taken by arrivals of this poll
    bool follows = true;                 ///< its path is by the index where our address stands now
  };
  struct Peer {
    std::uint64_t scratch_address = 0;
    std::uint32_t scratch_rkey = 0;
    std::uint32_t first_lane = 0;
    PeerTally tally;
  };

  // verbs_link_setup.cpp
  void create_queue_pairs(const VerbsLinkOptions& options);
  void exchange_and_connect(bootstrap::Group& group);
  [[nodiscard]] std::vector<std::byte> hello() const;
  void take_hello(std::uint32_t peer, std::span<const std::byte> bytes, const std::string& name);

  // verbs_link.cpp
  int post(Lane& lane, const WriteRequest& request, std::uint64_t wr_id, bool signaled) noexcept;
  bool take(const ibv_wc& completion, LinkEvent& event, bool& is_event) noexcept;
  bool repost_receives() noexcept;
  void fail(std::uint32_t lane, const ErrorParts& parts) noexcept;
  [[nodiscard]] verbs::Endpoints ends_of(const Lane& lane) const;
  [[nodiscard]] verbs::ConnectOptions connect_options(const Lane& lane) const;

  LinkSetup setup_;
  std::uint32_t lanes_per_peer_;
  std::uint8_t dscp_;
  std::shared_ptr<verbs::Context> context_;
  std::shared_ptr<verbs::ProtectionDomain> domain_;
  std::shared_ptr<verbs::CompletionQueue> queue_;
  verbs::MemoryRegion scratch_region_;
  RegistrationCache user_memory_;
  std::vector<Lane> lanes_;  ///< [peer * k + i]; those of this rank itself stay empty
  std::vector<Peer> peers_;
  std::vector<std::string> hosts_;
  std::unordered_map<std::uint32_t, std::uint32_t> lane_by_qpn_;  ///< for error lines only
  std::array<ibv_wc, 32> completions_;
  std::size_t first_completion_ = 0;  ///< completions that wait() found, or that did not fit the caller's span
  std::size_t completion_count_ = 0;
  std::optional<LinkFailure> failure_;
};

}  // namespace tensorwire::comm
