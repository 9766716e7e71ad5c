// One end of an RDMA connection of the soft HCA in this process, with memory of a real GPU registered beside memory of
// the host. Nothing but an address of the loopback interface is needed.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/gpu_memory.hpp"
#include "softhca/e2e/endpoint.hpp"

namespace tensorwire::test {

namespace hca = softhca;
namespace rdma = transport;

/// Memory that RDMA is to reach, of one of the kinds that CUDA has.
class RdmaMemory {
 public:
  enum class Kind : std::uint8_t {
    kHost,        ///< malloc
    kPageLocked,  ///< cudaHostAlloc
    kMalloc,      ///< cudaMalloc
    kVirtual,     ///< cuMemCreate, cuMemMap
  };
  RdmaMemory(Kind kind, int device, std::size_t bytes);
  ~RdmaMemory();
  RdmaMemory(const RdmaMemory&) = delete;
  RdmaMemory& operator=(const RdmaMemory&) = delete;

  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(data_); }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  [[nodiscard]] bool on_gpu() const { return kind_ == Kind::kMalloc || kind_ == Kind::kVirtual; }
  void write(std::size_t offset, std::span<const std::byte> from) const;
  [[nodiscard]] std::vector<std::byte> read(std::size_t offset, std::size_t bytes) const;
  /// Before its time, under a registration.
  void free();

 private:
  Kind kind_;
  int device_;
  std::size_t bytes_;
  std::byte* data_ = nullptr;
  cuda::GpuMemory virtual_;
};

[[nodiscard]] std::string name(RdmaMemory::Kind kind);

/// An endpoint and its memory, all of it registered.
struct RdmaEnd {
  static constexpr std::size_t kBytes = 2 << 20;

  hca::testing::Endpoint end;
  RdmaMemory memory;
  std::uint32_t key = 0;

  RdmaEnd(std::uint32_t index, hca::HcaOptions options, RdmaMemory::Kind kind, int device);
  ~RdmaEnd() { end.hca->deregister_memory(key); }

  int post(rdma::WrOpcode opcode, std::uint64_t from, std::uint32_t bytes, const RdmaEnd& to, std::uint64_t to_offset,
           std::uint64_t add = 0) const;
  int post_receive(std::uint64_t offset, std::uint32_t bytes) const;
  [[nodiscard]] rdma::WcStatus next_status(Ps bound = 10 * kSecond) const;
};

[[nodiscard]] std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed);

}  // namespace tensorwire::test
