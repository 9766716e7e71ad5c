// The link between ranks that map each other's memory, over another link. Messages for slots of such a peer are read in
// place: the sender leaves the bytes in its own memory and says in a ring where they are (mapped_ring.hpp); no system
// call, no copy by the receiver. All else goes through the link below: peers of other hosts, writes into users'
// outputs, signs of life, news of the device.
//
// Bytes that already lie in the sender's send slots stay there. Those of a user are copied to the memory that would be
// the slots of that peer: nothing arrives in those, and the peer's credit says when one is free, as it does for its
// own. Where the peers' processor cores fight over written cache lines, bytes are stored past the caches
// (base/stream_copy.hpp).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/link.hpp"
#include "comm/mapped_peers.hpp"

namespace tensorwire::comm {

class MappedLink final : public Link {
 public:
  /// @param setup whose scratch is that of `peers` @param below made with the same setup
  MappedLink(const LinkSetup& setup, std::unique_ptr<MappedPeers> peers, std::unique_ptr<Link> below, bool streams);

  [[nodiscard]] std::uint32_t scratch_key() const noexcept override { return below_->scratch_key(); }
  [[nodiscard]] std::uint32_t key_of(const void* address, std::size_t bytes) override {
    return below_->key_of(address, bytes);
  }
  [[nodiscard]] bool has_windows() const noexcept override { return below_->has_windows(); }
  [[nodiscard]] UserOutput output_of(void* address, std::size_t bytes) override {
    return below_->output_of(address, bytes);
  }
  void forget(const void* address, std::size_t bytes) noexcept override { below_->forget(address, bytes); }
  bool post_write(const WriteRequest& request) noexcept override;
  int poll(std::span<LinkEvent> events) noexcept override;
  void probe(std::uint32_t peer) noexcept override { below_->probe(peer); }
  void look_at_device() noexcept override { below_->look_at_device(); }
  void wait(Ps bound) noexcept override;
  void abandon() noexcept override { below_->abandon(); }
  void retire() noexcept override { below_->retire(); }
  [[nodiscard]] bool keeps_in_place() const noexcept override { return true; }
  [[nodiscard]] bool streams(const std::byte* to) const noexcept override;
  [[nodiscard]] const LinkFailure* failure() const noexcept override;
  [[nodiscard]] PeerStats stats(std::uint32_t peer) const noexcept override;
  [[nodiscard]] std::optional<std::uint64_t> device_counter(std::string_view name) const override {
    return below_->device_counter(name);
  }
  [[nodiscard]] std::string describe(std::uint32_t peer) const override;
  [[nodiscard]] std::string describe_device() const override { return below_->describe_device(); }

 private:
  struct Peer {
    bool mapped = false;
    bool sleeps = false;
    MappedRingWriter writer;
    MappedRingReader reader;
    std::span<const std::byte> scratch;
    std::uint32_t key_below = 0;  ///< of that memory in the link below; where there are peers of other hosts
    PeerTally tally;
  };

  bool post_below(const WriteRequest& request) noexcept;
  /// Where in this rank's scratch the peer can read the request's bytes; they are there when it returns.
  [[nodiscard]] std::uint64_t placed(const WriteRequest& request, std::uint64_t bytes) noexcept;
  [[nodiscard]] bool may_stay(const Piece& piece, std::uint64_t slot_offset) const noexcept;
  /// False: nothing more, or failed.
  bool take_note(std::uint32_t rank, LinkEvent& event) noexcept;
  bool fail(std::uint32_t peer, const char* why) noexcept;
  [[nodiscard]] bool looks_below() noexcept;

  LinkSetup setup_;
  std::uint64_t pair_bytes_;
  std::unique_ptr<MappedPeers> memory_;
  std::unique_ptr<Link> below_;
  bool streams_;
  bool all_mapped_ = true;
  std::vector<Peer> peers_;                  ///< by rank
  std::vector<std::uint32_t> mapped_peers_;  ///< ranks, beginning with the successor
  std::vector<std::uint64_t> sent_;          ///< tokens of writes whose source is free again
  std::uint32_t busy_below_ = 0;             ///< polls that look there for sure
  std::uint32_t polls_ = 0;
  std::optional<LinkFailure> failure_;
};

}  // namespace tensorwire::comm
