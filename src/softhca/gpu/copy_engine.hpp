// What the soft HCA needs of a GPU: bytes copied between page-locked memory of the host and the GPU's, in the
// background, and who has allocated an address. Two make it: CUDA (cuda_copy_engine.hpp), and the tests' double, whose
// copies finish late.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace tensorwire::softhca {

/// Called by one thread at a time (the shard's lock). Copies of one direction finish in the order in which they began;
/// of the two directions neither waits for the other.
class CopyEngine {
 public:
  /// Of one direction: counts up from 1; 0 says that the copy was refused.
  using Ticket = std::uint64_t;

  virtual ~CopyEngine() = default;
  /// Page-locked memory that copies may name on the host's side; as long as the engine lives.
  [[nodiscard]] virtual std::span<std::byte> pinned() noexcept = 0;
  /// GPU to host, and host to GPU. The host's bytes must stay alone until the copy is done.
  virtual Ticket begin_read(std::span<std::byte> to, std::uint64_t from) noexcept = 0;
  virtual Ticket begin_write(std::uint64_t to, std::span<const std::byte> from) noexcept = 0;
  /// Waits for a copy and those before it. False: one of them failed, and what it should have written is unknown.
  virtual bool finish_read(Ticket ticket) noexcept = 0;
  virtual bool finish_write(Ticket ticket) noexcept = 0;
  /// Whether finish_write() would return at once.
  [[nodiscard]] virtual bool write_done(Ticket ticket) noexcept = 0;
  /// A number that no other allocation has had or will have; 0 where nothing is allocated.
  [[nodiscard]] virtual std::uint64_t allocation_at(std::uint64_t address) noexcept = 0;
};

/// A range of GPU memory as registration found it.
struct GpuRange {
  int device = 0;
  std::uint64_t allocation = 0;  ///< CopyEngine::allocation_at()
};

/// The GPUs of this process.
class GpuPlatform {
 public:
  struct Found {
    std::optional<GpuRange> range;
    int error = 0;    ///< errno, where the memory is a GPU's but cannot be registered
    std::string why;  ///< then: one clause, and what to do
  };

  virtual ~GpuPlatform() = default;
  /// There may be memory of GPUs in this process.
  [[nodiscard]] virtual bool present() noexcept = 0;
  /// No range and no error: host memory, or nobody's. Any thread.
  [[nodiscard]] virtual Found find(std::uint64_t address, std::uint64_t length) = 0;
  /// @throws Error when the GPU cannot be used.
  [[nodiscard]] virtual std::unique_ptr<CopyEngine> open(int device, std::size_t pinned_bytes) = 0;
};

}  // namespace tensorwire::softhca
