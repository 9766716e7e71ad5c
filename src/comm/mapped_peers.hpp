// How ranks of one host come to map each other's slots: who wants to, whose memory can be had, and why not where it
// cannot. Owns this rank's region, the mappings of the others', and the descriptors that wake a sleeping rank.
//
// A region is: the scratch memory as the runner lays it out; a word that says whether its owner sleeps; a ring for each
// rank, of the messages to that rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "bootstrap/group.hpp"
#include "comm/mapped_region.hpp"
#include "comm/mapped_ring.hpp"

namespace tensorwire::comm {

enum class MappedWish : std::uint8_t {
  kOff,
  kAuto,      ///< where it can be
  kRequired,  ///< an error where it cannot
};

/// The same on all ranks but for `sleeps`.
struct MappedLayout {
  std::uint32_t ranks = 1;
  std::uint64_t scratch_bytes = 0;
  std::uint32_t messages = 0;  ///< that a peer may have under way to this rank
  bool sleeps = false;         ///< this rank sleeps when it waits long: it must be woken

  [[nodiscard]] std::uint64_t sleep_word_at() const noexcept;
  [[nodiscard]] std::uint64_t ring_at(std::uint32_t reader) const noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return ring_at(ranks); }
};

class MappedPeers {
 public:
  /// A collective call. Null: no two ranks map each other, or this one takes no part.
  /// @throws Error where it is required and this rank cannot map every other, or the group is broken
  [[nodiscard]] static std::unique_ptr<MappedPeers> meet(bootstrap::Group& group, MappedWish wish,
                                                         const MappedLayout& layout);

  [[nodiscard]] const MappedLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] std::span<std::byte> scratch() const noexcept {
    return region_.bytes().first(static_cast<std::size_t>(layout_.scratch_bytes));
  }
  /// The peer's scratch; empty: it is not mapped.
  [[nodiscard]] std::span<const std::byte> scratch_of(std::uint32_t peer) const noexcept;
  [[nodiscard]] bool maps(std::uint32_t peer) const noexcept { return !peers_[peer].region.bytes().empty(); }
  /// Whether the peer sleeps in its waits, so that it must be woken.
  [[nodiscard]] bool sleeps(std::uint32_t peer) const noexcept { return peers_[peer].sleeps; }

  [[nodiscard]] MappedRingWriter writer_to(std::uint32_t peer) const noexcept;
  [[nodiscard]] MappedRingReader reader_from(std::uint32_t peer, std::uint32_t self) const noexcept;

  /// Readable once a peer has called wake().
  [[nodiscard]] int wake_descriptor() const noexcept { return wake_.get(); }
  void say_asleep(bool asleep) noexcept;
  /// After a message to it: wakes the peer if it sleeps.
  void wake(std::uint32_t peer) noexcept;

 private:
  struct Peer {
    PeerRegion region;
    UniqueFd wake;  ///< eventfd
    bool sleeps = false;
  };

  explicit MappedPeers(const MappedLayout& layout);
  void take(std::uint32_t sender, bool is_region, UniqueFd descriptor);

  MappedLayout layout_;
  SharedRegion region_;
  UniqueFd wake_;
  std::vector<Peer> peers_;  ///< by rank

  friend class MappedMeeting;
};

}  // namespace tensorwire::comm
