// Memory of one GPU as links reach it: through page-locked memory and copies in the background. Pure logic over a
// CopyEngine; it knows neither CUDA nor links.
//
// Reading. Before a link builds a batch of packets it names their sources (want(), in their order). Neighbouring ones
// are merged into copies of about kCopyBytes, and read() then waits for the copy that holds its bytes and no other, so
// packets are built while later copies run. Nothing is kept beyond the batch: what is sent again is read again.
//
// Writing. write() puts bytes into the arena and notes a run: bytes of one owner that lie one behind the other on both
// sides. A run of kCopyBytes begins to be copied at once, the others when issue() or settle() is called. settle()
// returns when all is in GPU memory. Outside of a deferring section (see defer()) write() settles by itself.
//
// Late writes (a fault): runs are begun only by settle(), or when the arena is full.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "softhca/gpu/copy_engine.hpp"
#include "transport/memory.hpp"

namespace tensorwire::softhca {

struct StagingCounters {
  std::uint64_t bytes_read = 0, bytes_written = 0;
  std::uint64_t copies = 0;
  std::uint64_t settles = 0;  ///< waits for writes
};

class StagedRegion;

class Staging {
 public:
  static constexpr std::size_t kCopyBytes = 64 * 1024;
  static constexpr std::size_t kReadArenaBytes = 320 * 1024;  ///< a whole batch: 64 packets of 4 KiB
  static constexpr std::size_t kWriteArenaBytes = 1 << 20;
  static constexpr std::size_t kPinnedBytes = kReadArenaBytes + kCopyBytes + kWriteArenaBytes;

  /// `engine` has kPinnedBytes of page-locked memory.
  Staging(std::unique_ptr<CopyEngine> engine, bool late);
  /// Waits for what is under way.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // ---- reading
  void want(StagedRegion& region, std::uint64_t address, std::size_t bytes) noexcept;
  /// No more is wanted: the rest of it begins to be copied.
  void wanted() noexcept;
  /// The batch is built.
  void forget_batch() noexcept;
  /// False: the memory is gone.
  bool read(StagedRegion& region, std::uint64_t address, std::span<std::byte> to, std::uint32_t* crc) noexcept;

  // ---- writing
  /// From now on write() only notes, for `owner` (a queue pair in one of its lives); 0: it settles again.
  void defer(std::uint64_t owner) noexcept { owner_ = owner; }
  bool write(StagedRegion& region, std::uint64_t address, std::span<const std::byte> from, std::uint32_t* crc) noexcept;
  bool atomic(StagedRegion& region, std::uint64_t address, const transport::AtomicOperation& operation,
              std::uint64_t& original) noexcept;
  /// Begins to copy what was noted. Not of late writes.
  void issue() noexcept;
  /// Returns when nothing is outstanding; late writes too.
  void settle() noexcept;
  [[nodiscard]] bool outstanding() const noexcept { return first_run_ != end_run_; }
  /// Of what this owner ever wrote nothing was lost, as far as settle() knows.
  [[nodiscard]] bool whole(std::uint64_t owner) const noexcept;

  [[nodiscard]] CopyEngine& engine() noexcept { return *engine_; }
  [[nodiscard]] const StagingCounters& counters() const noexcept { return counters_; }

 private:
  /// A copy out of the GPU for the batch.
  struct Chunk {
    StagedRegion* region;
    std::uint64_t address;
    std::size_t offset;  ///< in the read arena
    std::size_t bytes;
    CopyEngine::Ticket ticket;
  };
  /// A copy into the GPU. Positions count bytes of the arena without end; modulo its size they are places.
  struct Run {
    StagedRegion* region;
    std::uint64_t owner;
    std::uint64_t address;
    std::uint64_t position;
    std::size_t bytes;
    CopyEngine::Ticket ticket;
    bool issued;
  };
  static constexpr std::size_t kMaxChunks = 128;
  static constexpr std::size_t kMaxRuns = 512;  ///< a power of two
  static constexpr std::size_t kMaxLosses = 16;

  void begin_chunk(Chunk& chunk) noexcept;
  [[nodiscard]] const Chunk* find_chunk(const StagedRegion& region, std::uint64_t address, std::size_t bytes) noexcept;
  [[nodiscard]] bool read_now(StagedRegion& region, std::uint64_t address, std::span<std::byte> to,
                              std::uint32_t* crc) noexcept;
  [[nodiscard]] Run& run_for(StagedRegion& region, std::uint64_t address, std::size_t bytes) noexcept;
  void note(StagedRegion& region, std::uint64_t address, std::span<const std::byte> from, std::uint32_t* crc) noexcept;
  void issue_all() noexcept;
  void begin_run(Run& run) noexcept;
  void retire_first() noexcept;
  void retire_done() noexcept;
  void settle_if_touched(std::uint64_t address, std::size_t bytes) noexcept;
  [[nodiscard]] Run& run_at(std::uint64_t index) noexcept { return runs_[index % kMaxRuns]; }

  std::unique_ptr<CopyEngine> engine_;
  const bool late_;
  std::span<std::byte> read_arena_;
  std::span<std::byte> bounce_;  ///< for what no batch holds
  std::span<std::byte> write_arena_;

  std::array<Chunk, kMaxChunks> chunks_;
  std::size_t chunk_count_ = 0;
  std::size_t begun_chunks_ = 0;
  std::size_t next_chunk_ = 0;  ///< where the last look-up ended
  CopyEngine::Ticket finished_ = 0;
  CopyEngine::Ticket last_read_ = 0;

  std::array<Run, kMaxRuns> runs_;  ///< ring: [first_run_, begun_runs_) are being copied, up to end_run_ noted
  std::uint64_t first_run_ = 0;
  std::uint64_t begun_runs_ = 0;
  std::uint64_t end_run_ = 0;
  std::uint64_t position_ = 0;  ///< where the next byte goes
  std::uint64_t owner_ = 0;
  bool lost_ = false;                               ///< a run was lost since write() last looked
  std::array<std::uint64_t, kMaxLosses> losses_{};  ///< owners, oldest overwritten
  std::size_t next_loss_ = 0;

  StagingCounters counters_;
};

/// A registered range of GPU memory: what MemoryRegion::ops points to.
class StagedRegion final : public transport::MemoryOps {
 public:
  StagedRegion(Staging& staging, std::uint64_t allocation) noexcept : staging_(staging), allocation_(allocation) {}

  bool load(std::uint64_t address, std::span<std::byte> to, std::uint32_t* crc) noexcept override {
    return staging_.read(*this, address, to, crc);
  }
  bool store(std::uint64_t address, std::span<const std::byte> from, std::uint32_t* crc) noexcept override {
    return staging_.write(*this, address, from, crc);
  }
  bool atomic(std::uint64_t address, const transport::AtomicOperation& operation,
              std::uint64_t& original) noexcept override {
    return staging_.atomic(*this, address, operation, original);
  }
  void prefetch(std::uint64_t address, std::size_t bytes) noexcept override { staging_.want(*this, address, bytes); }

  /// What was registered is still what lies at `address`.
  [[nodiscard]] bool valid_at(std::uint64_t address) const noexcept {
    return staging_.engine().allocation_at(address) == allocation_;
  }

 private:
  Staging& staging_;
  const std::uint64_t allocation_;
};

}  // namespace tensorwire::softhca
