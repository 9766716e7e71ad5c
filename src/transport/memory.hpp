// Registered memory: protection domains, regions and windows, and the check that every local and remote access goes
// through. The table knows keys, ranges and rights; it never touches a byte. Bytes move only through a region's
// MemoryOps, and only in the hands of a link; the eight bytes of an atomic in those of the engine.
//
// A window opens part of a region to peers under a key of its own, and can be closed again by either side. Its key is
// the table's choice but for the low eight bits, the tag, which each binding sets anew. (memory_windows.cpp)
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/random.hpp"
#include "transport/key_map.hpp"
#include "transport/types.hpp"

namespace tensorwire::transport {

struct AtomicOperation {
  bool compare = false;       ///< compare-and-swap, else fetch-and-add
  std::uint64_t operand = 0;  ///< to compare with, or to add
  std::uint64_t swap = 0;     ///< stored where `compare` found `operand`
};
/// Does it to an aligned word of this process; returns what was there.
std::uint64_t apply_atomic(std::uint64_t& word, const AtomicOperation& operation) noexcept;

/// How a link reaches the bytes of a region: host memory, CUDA memory, or none (simulation).
class MemoryOps {
 public:
  virtual ~MemoryOps() = default;

  /// Copies region bytes at `address` into `to`. When `crc` is given, advances that CRC register (wire/icrc.hpp) over
  /// them in the same pass. Returns false when the memory is gone (unmapped after registration).
  virtual bool load(std::uint64_t address, std::span<std::byte> to, std::uint32_t* crc) noexcept = 0;
  /// Copies `from` into region bytes at `address`, in ascending order, the last bytes last (consumers poll the last
  /// byte).
  virtual bool store(std::uint64_t address, std::span<const std::byte> from, std::uint32_t* crc) noexcept = 0;
  /// The link is going to load these bytes, and will say so of others, in the order in which it loads them: memory that
  /// takes time to be read may begin. Only a hint.
  virtual void prefetch(std::uint64_t /*address*/, std::size_t /*bytes*/) noexcept {}
  /// One 64-bit word, aligned, in the byte order of this host; sets `original` to what was there. Atomic towards every
  /// thread of the processes that map it. Called by the engine itself, inside commit(): it must happen exactly once.
  /// False when the memory is gone, or is of a kind that has no atomics.
  virtual bool atomic(std::uint64_t /*address*/, const AtomicOperation& /*operation*/,
                      std::uint64_t& /*original*/) noexcept {
    return false;
  }
};

struct MemoryRegion {
  std::uint64_t iova = 0;     ///< first address as work requests and peers name it
  std::uint64_t length = 0;   ///< bytes
  std::uint64_t address = 0;  ///< first address as MemoryOps knows it; equals iova unless registered with another iova
  std::uint32_t access = 0;
  std::uint32_t key = 0;  ///< lkey and rkey: 32 random bits
  PdId pd = 0;
  MemoryOps* ops = nullptr;
  std::uint32_t windows = 0;  ///< bound to it
  bool staged = false;        ///< no process reaches it by its address: bytes move through `ops` alone
};

/// IB specification vol. 1, 10.6.7: a type 1 window serves every queue pair of its protection domain and is bound anew
/// at will; a type 2 window (2B) serves the one queue pair that it was bound by, and must be invalidated in between.
enum class WindowType : std::uint8_t { k1 = 1, k2 = 2 };

struct MemoryWindow {
  WindowType type = WindowType::k1;
  PdId pd = 0;
  std::uint32_t key = 0;  ///< rkey as of the last binding
  // While it is bound:
  MemoryRegion* region = nullptr;  ///< null: it is not
  std::uint32_t qpn = 0;           ///< type 2: the queue pair that it was bound by
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t access = 0;
};

/// What a key and the tag of a binding have in common: which window it is.
inline constexpr unsigned kWindowTagBits = 8;
[[nodiscard]] constexpr std::uint32_t window_of(std::uint32_t key) noexcept { return key >> kWindowTagBits; }
inline constexpr std::size_t kMaxWindows = 1U << 16;  ///< of 2^24 numbers, so that a free one is soon found

/// A run of bytes inside one region (mr != nullptr, `address` in MemoryOps terms), or inside engine memory (mr ==
/// nullptr: inline data, `address` is a host pointer). Without default values on purpose: arrays of pieces stand in
/// every packet description, and clearing them would cost more than filling the one that is used.
struct Piece {
  const MemoryRegion* mr;
  std::uint64_t address;
  std::uint32_t length;
};

enum class AccessResult : std::uint8_t { kOk, kBadKey, kWrongPd, kOutOfRange, kNoRight };

class MemoryTable {
 public:
  explicit MemoryTable(std::uint64_t seed) : random_(seed) {}

  /// Set-up path: allocates. `length` may be zero.
  const MemoryRegion& add(MemoryRegion region);
  /// False when no region has this key, or windows are bound to it.
  bool remove(std::uint32_t key) noexcept;
  [[nodiscard]] const MemoryRegion* find(std::uint32_t key) const noexcept;
  /// How many regions and windows this domain has.
  [[nodiscard]] std::size_t count(PdId pd) const;

  /// The one check: key known, same PD, [address, address + length) inside the region (no wrap), every right in
  /// `rights` granted. On kOk `piece` names the bytes. A zero-length access needs no valid key (IB
  /// specification 9.7.4.1.5, 10.6.7) and is not asked here. `length` is at most kMaxMessageBytes.
  [[nodiscard]] AccessResult check(std::uint32_t key, PdId pd, std::uint64_t address, std::uint64_t length,
                                   std::uint32_t rights, Piece& piece) const noexcept;

  /// The pieces of [offset, offset + bytes) of a scatter/gather list, which must be that long. Every element that is
  /// touched is checked whole. False when one does not pass; `count` is set either way.
  [[nodiscard]] bool find_pieces(std::span<const Sge> list, PdId pd, std::uint64_t offset, std::uint32_t bytes,
                                 std::uint32_t rights, std::array<Piece, kMaxSge>& pieces,
                                 std::uint8_t& count) const noexcept;

  // ---- windows (memory_windows.cpp); `pd` and `qpn` are those of the queue pair that asks
  /// Set-up path: allocates. Returns its first key, which opens nothing yet; 0 when there are kMaxWindows.
  [[nodiscard]] std::uint32_t add_window(PdId pd, WindowType type);
  /// Bound or not, whatever the tag of `key`. False when there is no such window.
  bool remove_window(std::uint32_t key) noexcept;
  /// Binds the window to which `new_key` belongs. False, and nothing changed: no such window or region in this domain,
  /// type 2 and bound already or with nothing to open, region without kAccessWindowBind or not writable where the
  /// window is to be, bytes outside of the region, rights that are not remote ones.
  [[nodiscard]] bool bind(std::uint32_t new_key, const WindowBinding& binding, PdId pd, std::uint32_t qpn) noexcept;
  /// A bound window of type 2 of this domain and queue pair has exactly this key. Nothing else can be invalidated, and
  /// no region.
  [[nodiscard]] bool can_invalidate(std::uint32_t key, PdId pd, std::uint32_t qpn) const noexcept;
  /// False, and nothing changed, when it cannot be.
  [[nodiscard]] bool invalidate(std::uint32_t key, PdId pd, std::uint32_t qpn) noexcept;
  /// The queue pair goes: what it bound of type 2 is unbound.
  void unbind_all(std::uint32_t qpn) noexcept;
  /// As check(), for a key that no region has.
  [[nodiscard]] AccessResult check_window(std::uint32_t key, PdId pd, std::uint32_t qpn, std::uint64_t address,
                                          std::uint64_t length, std::uint32_t rights, Piece& piece) const noexcept;

 private:
  static void unbind(MemoryWindow& window) noexcept;
  [[nodiscard]] bool window_number_free(std::uint32_t number) const noexcept;

  Random random_;
  KeyMap<MemoryRegion> regions_;
  KeyMap<MemoryWindow> windows_;  ///< by window_of(key)
};

// In the header, because every packet passes here.
inline bool MemoryTable::find_pieces(std::span<const Sge> list, PdId pd, std::uint64_t offset, std::uint32_t bytes,
                                     std::uint32_t rights, std::array<Piece, kMaxSge>& pieces,
                                     std::uint8_t& count) const noexcept {
  count = 0;
  for (const Sge& sge : list) {
    if (bytes == 0) break;
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    Piece& piece = pieces[count];
    if (check(sge.lkey, pd, sge.address, sge.length, rights, piece) != AccessResult::kOk) return false;
    piece.address += offset;
    piece.length = std::min(sge.length - static_cast<std::uint32_t>(offset), bytes);
    bytes -= piece.length;
    offset = 0;
    ++count;
  }
  return true;
}

}  // namespace tensorwire::transport
