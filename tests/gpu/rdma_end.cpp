#include "gpu/rdma_end.hpp"

#include <cstring>

#include "base/random.hpp"
#include "cuda/driver.cuh"

namespace tensorwire::test {

using cuda::check;

RdmaMemory::RdmaMemory(Kind kind, int device, std::size_t bytes) : kind_(kind), device_(device), bytes_(bytes) {
  const cuda::OnDevice current(device);
  void* data = nullptr;
  switch (kind) {
    case Kind::kHost:
      data = ::operator new(bytes);
      break;
    case Kind::kPageLocked:
      check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable), "allocate page-locked memory");
      break;
    case Kind::kMalloc:
      check(cudaMalloc(&data, bytes), "allocate memory of a GPU");
      break;
    case Kind::kVirtual:
      virtual_ = cuda::GpuMemory::allocate(bytes, device, cuda::Home::kGpu, std::span(&device, 1));
      data = virtual_.data();
  }
  data_ = static_cast<std::byte*>(data);
}

RdmaMemory::~RdmaMemory() { free(); }

void RdmaMemory::free() {
  const cuda::OnDevice current(device_);
  if (kind_ == Kind::kHost) ::operator delete(data_);
  if (kind_ == Kind::kPageLocked) cudaFreeHost(data_);
  if (kind_ == Kind::kMalloc) cudaFree(data_);
  virtual_ = {};
  data_ = nullptr;
}

void RdmaMemory::write(std::size_t offset, std::span<const std::byte> from) const {
  const cuda::OnDevice current(device_);  // no other GPU may touch virtual memory
  check(cudaMemcpy(data_ + offset, from.data(), from.size(), cudaMemcpyDefault), "write memory of a test");
}

std::vector<std::byte> RdmaMemory::read(std::size_t offset, std::size_t bytes) const {
  const cuda::OnDevice current(device_);
  std::vector<std::byte> out(bytes);
  check(cudaMemcpy(out.data(), data_ + offset, bytes, cudaMemcpyDefault), "read memory of a test");
  return out;
}

std::string name(RdmaMemory::Kind kind) {
  switch (kind) {
    case RdmaMemory::Kind::kHost:
      return "Host";
    case RdmaMemory::Kind::kPageLocked:
      return "PageLocked";
    case RdmaMemory::Kind::kMalloc:
      return "Malloc";
    default:
      return "Virtual";
  }
}

RdmaEnd::RdmaEnd(std::uint32_t index, hca::HcaOptions options, RdmaMemory::Kind kind, int device)
    : end(hca::open_at(hca::testing::loopback_device(), hca::testing::test_address(index), std::move(options)),
          {.bytes = 4096, .timeout = 14}),
      memory(kind, device, kBytes) {
  const int error =
      end.hca->register_memory(end.pd, memory.address(), kBytes, memory.address(), hca::testing::kEveryAccess, key);
  if (error != 0) throw std::runtime_error("register memory: " + std::string(std::strerror(error)));
}

int RdmaEnd::post(rdma::WrOpcode opcode, std::uint64_t from, std::uint32_t bytes, const RdmaEnd& to,
                  std::uint64_t to_offset, std::uint64_t add) const {
  const rdma::Sge sge{memory.address() + from, bytes, key};
  rdma::SendWr wr;
  wr.opcode = opcode;
  wr.signaled = true;
  wr.remote_address = to.memory.address() + to_offset;
  wr.rkey = to.key;
  wr.compare_add = add;
  wr.sges = {&sge, 1};
  return end.hca->post_send(end.qp, wr, false);
}

int RdmaEnd::post_receive(std::uint64_t offset, std::uint32_t bytes) const {
  const rdma::Sge sge{memory.address() + offset, bytes, key};
  return end.hca->post_recv(end.qp, {.wr_id = 1, .sges = {&sge, 1}});
}

rdma::WcStatus RdmaEnd::next_status(Ps bound) const {
  const auto completion = end.next(bound);
  if (completion) return completion->status;
  ADD_FAILURE() << "no completion";
  return rdma::WcStatus::kFatal;
}

std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  Random random{seed};
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next() >> 56);
  return bytes;
}

}  // namespace tensorwire::test
