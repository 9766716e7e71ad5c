// One end of a connection whose Hca has a GPU (the double), with memory of it registered beside the endpoint's own.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.hpp"
#include "endpoint.hpp"
#include "softhca/gpu_double.hpp"

namespace tensorwire::softhca::testing {

/// Registered memory of either kind, and its bytes as they really are.
struct Place {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::span<std::byte> bytes;
};

struct GpuEnd {
  static constexpr std::size_t kGpuBytes = 2 << 20;

  std::shared_ptr<DoublePlatform> gpu = std::make_shared<DoublePlatform>();
  Endpoint end;
  Place host, device;

  GpuEnd(std::uint32_t ipv4, HcaOptions options, Endpoint::Settings settings = {})
      : end(open_at(loopback_device(), ipv4, with_gpu(std::move(options))), settings) {
    host = {reinterpret_cast<std::uint64_t>(end.memory.data()), end.key, end.memory};
    device = registered(gpu->memory.allocate(kGpuBytes));
  }
  ~GpuEnd() { end.hca->deregister_memory(device.key); }

  [[nodiscard]] HcaOptions with_gpu(HcaOptions options) const {
    options.gpus = gpu;
    return options;
  }

  Place registered(const DoubleMemory::Allocation& at) const {
    std::uint32_t key = 0;
    const int error = end.hca->register_memory(end.pd, at.address, at.bytes.size(), at.address, kEveryAccess, key);
    if (error != 0) throw std::runtime_error("register_memory of the GPU: " + std::to_string(error));
    return {at.address, key, at.bytes};
  }

  /// `from` is memory here, `to` there.
  int post(transport::WrOpcode opcode, std::vector<transport::Sge> from, const Place& to, std::uint64_t to_offset = 0,
           std::uint64_t add = 0, std::uint32_t immediate = 5) const {
    transport::SendWr wr;
    wr.opcode = opcode;
    wr.signaled = true;
    wr.immediate = immediate;
    wr.remote_address = to.address + to_offset;
    wr.rkey = to.key;
    wr.compare_add = add;
    wr.sges = from;
    return end.hca->post_send(end.qp, wr, false);
  }
  int post_receive(std::vector<transport::Sge> to) const {
    return end.hca->post_recv(end.qp, {.wr_id = 1, .sges = to});
  }
  [[nodiscard]] transport::WcStatus next_status(Ps bound = 5 * kSecond) const {
    const auto completion = end.next(bound);
    if (completion) return completion->status;
    ADD_FAILURE() << "no completion";
    return transport::WcStatus::kFatal;
  }
};

inline transport::Sge part(const Place& place, std::uint64_t offset, std::uint32_t bytes) {
  return {place.address + offset, bytes, place.key};
}

inline void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  Random random{seed};
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next() >> 56);
}

inline bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace tensorwire::softhca::testing
