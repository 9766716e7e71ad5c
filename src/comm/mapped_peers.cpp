#include "comm/mapped_peers.hpp"

#include <immintrin.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/round_up.hpp"

namespace tensorwire::comm {

namespace {

/// What two ranks write lies so far apart that the processor fetches no line of the one with one of the other.
constexpr std::uint64_t kApart = 256;

using SleepWord = std::atomic<std::uint32_t>;

/// An eventfd has no file type. Writing to something else that a peer passed instead could block us or raise a signal.
bool is_anonymous(int fd) noexcept {
  struct stat status = {};
  return ::fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == 0;
}

}  // namespace

std::uint64_t MappedLayout::sleep_word_at() const noexcept { return round_up(scratch_bytes, std::uint64_t{4096}); }

std::uint64_t MappedLayout::ring_at(std::uint32_t reader) const noexcept {
  const std::uint64_t ring = round_up(mapped_cells_for(messages) * sizeof(MappedCell), kApart);
  return sleep_word_at() + kApart + reader * ring;
}

MappedPeers::MappedPeers(const MappedLayout& layout)
    : layout_(layout),
      region_(static_cast<std::size_t>(layout.bytes())),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      peers_(layout.ranks) {
  if (!wake_) throw system_error("make an eventfd for ranks of this host to wake each other", errno);
}

/// What a peer delivered. @throws Error when it is of no use.
void MappedPeers::take(std::uint32_t sender, bool is_region, UniqueFd descriptor) {
  Peer& peer = peers_[sender];
  if (is_region) {
    peer.region = PeerRegion{descriptor.get(), static_cast<std::size_t>(layout_.bytes())};
  } else {
    if (!is_anonymous(descriptor.get())) throw Error{"take an eventfd of another rank", "it gave something else"};
    peer.wake = std::move(descriptor);
  }
}

std::span<const std::byte> MappedPeers::scratch_of(std::uint32_t peer) const noexcept {
  if (!maps(peer)) return {};
  return peers_[peer].region.bytes().first(static_cast<std::size_t>(layout_.scratch_bytes));
}

MappedRingWriter MappedPeers::writer_to(std::uint32_t peer) const noexcept {
  std::byte* const at = region_.bytes().data() + layout_.ring_at(peer);
  return {reinterpret_cast<MappedCell*>(at), mapped_cells_for(layout_.messages)};
}

MappedRingReader MappedPeers::reader_from(std::uint32_t peer, std::uint32_t self) const noexcept {
  const std::byte* const at = peers_[peer].region.bytes().data() + layout_.ring_at(self);
  return {reinterpret_cast<const MappedCell*>(at), mapped_cells_for(layout_.messages)};
}

// Asleep is said before the last look at the rings, and a message is written before the look at who sleeps: with a full
// fence between the two on either side, one of them sees the other.
void MappedPeers::say_asleep(bool asleep) noexcept {
  auto* const word = reinterpret_cast<SleepWord*>(region_.bytes().data() + layout_.sleep_word_at());
  word->store(asleep ? 1 : 0, std::memory_order_relaxed);
  if (asleep) {
    _mm_mfence();  // not std::atomic_thread_fence, which ThreadSanitizer does not know
    return;
  }
  std::uint64_t ignored = 0;
  static_cast<void>(::read(wake_.get(), &ignored, sizeof ignored));
}

void MappedPeers::wake(std::uint32_t peer) noexcept {
  _mm_mfence();
  const std::byte* const at = peers_[peer].region.bytes().data() + layout_.sleep_word_at();
  if (reinterpret_cast<const SleepWord*>(at)->load(std::memory_order_relaxed) == 0) return;
  const std::uint64_t one = 1;
  static_cast<void>(::write(peers_[peer].wake.get(), &one, sizeof one));
}

}  // namespace tensorwire::comm
