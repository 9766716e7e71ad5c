// A GPU for tests, since where they run there is none: memory whose address nobody can use (it is mapped without any
// right; the bytes lie elsewhere, behind a second mapping), reached by copies that finish as late as can be: when
// somebody waits for them. What a copy has not filled yet holds kPoison, and its source is read only when it finishes.
// tests/gpu runs the same kind of tests on the real thing.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <vector>

#include "softhca/gpu/copy_engine.hpp"

namespace tensorwire::softhca::testing {

inline constexpr std::byte kPoison{0xee};

/// All memory of the GPU, before what of it is allocated.
class DoubleMemory {
 public:
  explicit DoubleMemory(std::size_t bytes = 16 << 20) : bytes_(bytes) {
    const int fd = ::memfd_create("gpu double", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, static_cast<::off_t>(bytes)) != 0) throw std::runtime_error("memfd");
    device_ = ::mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, fd, 0);
    hidden_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (device_ == MAP_FAILED || hidden_ == MAP_FAILED) throw std::runtime_error("mmap");
  }
  ~DoubleMemory() {
    ::munmap(device_, bytes_);
    ::munmap(hidden_, bytes_);
  }
  DoubleMemory(const DoubleMemory&) = delete;
  DoubleMemory& operator=(const DoubleMemory&) = delete;

  struct Allocation {
    std::uint64_t address = 0;
    std::span<std::byte> bytes;  ///< what lies there
  };
  /// A page of nothing stands between allocations.
  Allocation allocate(std::size_t bytes) {
    const std::lock_guard guard{mutex_};
    if (next_ + bytes > bytes_) throw std::runtime_error("the GPU double is full");
    const std::uint64_t address = reinterpret_cast<std::uint64_t>(device_) + next_;
    blocks_.push_back({address, bytes, ++last_id_});
    const Allocation made{address, {static_cast<std::byte*>(hidden_) + next_, bytes}};
    next_ += (bytes + 2 * kPage - 1) / kPage * kPage;
    return made;
  }
  void free(std::uint64_t address) {
    const std::lock_guard guard{mutex_};
    std::erase_if(blocks_, [&](const Block& block) { return block.address == address; });
  }
  /// Freed, and the same address allocated for something else.
  void free_and_allocate_anew(std::uint64_t address) {
    const std::lock_guard guard{mutex_};
    for (Block& block : blocks_) {
      if (block.address == address) block.id = ++last_id_;
    }
  }
  /// 0: not all of it is inside one allocation.
  [[nodiscard]] std::uint64_t id_of(std::uint64_t address, std::size_t bytes) {
    const std::lock_guard guard{mutex_};
    for (const Block& block : blocks_) {
      if (address >= block.address && address + bytes <= block.address + block.bytes) return block.id;
    }
    return 0;
  }
  [[nodiscard]] bool is_mine(std::uint64_t address) const {
    const auto start = reinterpret_cast<std::uint64_t>(device_);
    return address >= start && address < start + bytes_;
  }
  [[nodiscard]] std::byte* hidden(std::uint64_t address) {
    return static_cast<std::byte*>(hidden_) + (address - reinterpret_cast<std::uint64_t>(device_));
  }

 private:
  struct Block {
    std::uint64_t address;
    std::size_t bytes;
    std::uint64_t id;
  };
  static constexpr std::size_t kPage = 4096;
  const std::size_t bytes_;
  void* device_ = nullptr;
  void* hidden_ = nullptr;
  std::mutex mutex_;
  std::vector<Block> blocks_;
  std::size_t next_ = 0;
  std::uint64_t last_id_ = 0;
};

class DoubleEngine final : public CopyEngine {
 public:
  DoubleEngine(DoubleMemory& memory, std::size_t pinned_bytes) : memory_(memory), pinned_(pinned_bytes) {}

  std::span<std::byte> pinned() noexcept override { return pinned_; }
  Ticket begin_read(std::span<std::byte> to, std::uint64_t from) noexcept override {
    if (memory_.id_of(from, to.size()) == 0) return 0;
    std::fill(to.begin(), to.end(), kPoison);
    return reads.begin({to.data(), memory_.hidden(from), to.size()});
  }
  Ticket begin_write(std::uint64_t to, std::span<const std::byte> from) noexcept override {
    if (memory_.id_of(to, from.size()) == 0) return 0;
    return writes.begin({memory_.hidden(to), from.data(), from.size()});
  }
  bool finish_read(Ticket ticket) noexcept override { return reads.finish(ticket); }
  bool finish_write(Ticket ticket) noexcept override { return writes.finish(ticket); }
  /// Now and then one finishes by itself.
  bool write_done(Ticket ticket) noexcept override {
    if (++asked_ % 3 == 0) writes.finish(writes.done + 1);
    return ticket <= writes.done;
  }
  std::uint64_t allocation_at(std::uint64_t address) noexcept override { return memory_.id_of(address, 1); }

  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };
  struct Direction {
    std::deque<Copy> waiting;
    Ticket begun = 0;
    Ticket done = 0;
    bool broken = false;  ///< copies begin, and never end well

    Ticket begin(const Copy& copy) {
      waiting.push_back(copy);
      return ++begun;
    }
    bool finish(Ticket ticket) {
      while (done < ticket && !waiting.empty()) {
        const Copy& copy = waiting.front();
        if (!broken) std::memcpy(copy.to, copy.from, copy.bytes);
        waiting.pop_front();
        ++done;
      }
      return !broken;
    }
  };
  Direction reads, writes;

 private:
  DoubleMemory& memory_;
  std::vector<std::byte> pinned_;
  unsigned asked_ = 0;
};

class DoublePlatform final : public GpuPlatform {
 public:
  bool present() noexcept override { return true; }
  Found find(std::uint64_t address, std::uint64_t length) override {
    if (!memory.is_mine(address)) return {};
    const std::uint64_t id = memory.id_of(address, length);
    if (id == 0) return {{}, EFAULT, "not all of it is inside one allocation"};
    return {GpuRange{.device = 0, .allocation = id}, 0, {}};
  }
  std::unique_ptr<CopyEngine> open(int /*device*/, std::size_t pinned_bytes) override {
    return std::make_unique<DoubleEngine>(memory, pinned_bytes);
  }

  DoubleMemory memory;
};

}  // namespace tensorwire::softhca::testing
