// WRITE WITH IMMEDIATE of 256 KiB from GPU to GPU by the soft HCA, in one process over the loopback interface, and
// where its time goes: the copies alone, the same message between host memories, and with one end on a GPU. Medians;
// the ways take turns. It checks content and counters, and fails when they are wrong.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <vector>

#include "cuda/driver.cuh"
#include "softhca/e2e/endpoint.hpp"
#include "softhca/gpu/cuda_copy_engine.hpp"
#include "softhca/gpu/staging.hpp"

namespace tensorwire {
namespace {

using softhca::testing::Endpoint;

constexpr std::uint32_t kBytes = 256 * 1024;
constexpr std::size_t kPacket = 4096;
constexpr int kRounds = 400;

[[noreturn]] void fail(const std::string& why) {
  fmt::print(stderr, "gpu_rdma: {}\n", why);
  std::exit(1);
}

struct Times {
  std::string name;
  std::vector<Ps> all;
  [[nodiscard]] double at(double quantile) {
    std::sort(all.begin(), all.end());
    return static_cast<double>(all[static_cast<std::size_t>(quantile * static_cast<double>(all.size() - 1))]) /
           static_cast<double>(kMicrosecond);
  }
};

/// Memory of the host or of a GPU, registered with an endpoint.
struct Buffer {
  void* data = nullptr;
  std::uint32_t key = 0;
  Buffer(const Endpoint& end, int device) {
    if (device < 0) {
      data = std::aligned_alloc(kPacket, kBytes);
      std::fill_n(static_cast<std::byte*>(data), kBytes, std::byte{1});
    } else {
      const cuda::OnDevice current(device);
      cuda::check(cudaMalloc(&data, kBytes), "allocate memory of a GPU");
      cuda::check(cudaMemset(data, 1, kBytes), "fill it");
    }
    if (end.hca->register_memory(end.pd, address(), kBytes, address(), softhca::testing::kEveryAccess, key) != 0)
      fail("the memory cannot be registered");
  }
  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(data); }
};

/// From post to the completion of the immediate at the other end.
Ps write_once(const Endpoint& a, const Buffer& from, const Endpoint& b, const Buffer& to) {
  if (b.post_receives(1) != 0) fail("no receive");
  const transport::Sge sge{from.address(), kBytes, from.key};
  transport::SendWr wr;
  wr.opcode = transport::WrOpcode::kWriteImm;
  wr.signaled = true;
  wr.remote_address = to.address();
  wr.rkey = to.key;
  wr.sges = {&sge, 1};
  const Ps begin = monotonic_now();
  if (a.hca->post_send(a.qp, wr, false) != 0) fail("no send");
  const auto arrived = b.next();
  const Ps end = monotonic_now();
  const auto done = a.next();
  const auto good = transport::WcStatus::kSuccess;
  if (!arrived || arrived->status != good || !done || done->status != good) fail("a write failed");
  return end - begin;
}

/// The copies of one message, as the HCA makes them, with nothing between.
struct Copies {
  std::unique_ptr<softhca::Staging> staging;
  softhca::StagedRegion region;
  std::uint64_t address;
  std::vector<std::byte> packet = std::vector<std::byte>(kPacket);

  Copies(softhca::GpuPlatform& platform, int device, const Buffer& buffer)
      : staging(std::make_unique<softhca::Staging>(platform.open(device, softhca::Staging::kPinnedBytes), false)),
        region(*staging, platform.find(buffer.address(), kBytes).range.value().allocation),
        address(buffer.address()) {}

  /// @return until the first packet could be built, and until the last one.
  std::pair<Ps, Ps> out() {
    const Ps begin = monotonic_now();
    for (std::size_t at = 0; at < kBytes; at += kPacket) region.prefetch(address + at, kPacket);
    staging->wanted();
    if (!region.load(address, packet, nullptr)) fail("a copy failed");
    const Ps first = monotonic_now() - begin;
    for (std::size_t at = kPacket; at < kBytes; at += kPacket) {
      if (!region.load(address + at, packet, nullptr)) fail("a copy failed");
    }
    const Ps last = monotonic_now() - begin;
    staging->forget_batch();
    return {first, last};
  }
  Ps in() {
    const Ps begin = monotonic_now();
    staging->defer(1);
    for (std::size_t at = 0; at < kBytes; at += kPacket) {
      if (!region.store(address + at, packet, nullptr)) fail("a copy failed");
    }
    staging->settle();
    return monotonic_now() - begin;
  }
};

void run() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) fail("there is no GPU here");
  const int there = gpus > 1 ? 1 : 0;
  Endpoint a{softhca::open_at(softhca::testing::loopback_device(), softhca::testing::test_address(0),
                              softhca::testing::packets_only())};
  Endpoint b{softhca::open_at(softhca::testing::loopback_device(), softhca::testing::test_address(1),
                              softhca::testing::packets_only())};
  if (a.connect(b.address()) != 0 || b.connect(a.address()) != 0) fail("the ends do not connect");
  const Buffer host_a{a, -1}, host_b{b, -1}, gpu_a{a, 0}, gpu_b{b, there};

  const auto platform = softhca::make_cuda_platform();
  Copies copies_a{*platform, 0, gpu_a}, copies_b{*platform, there, gpu_b};
  Times first{"copy out of the GPU, until the first packet", {}}, out{"copy out of the GPU, all of it", {}},
      in{"copy into the GPU, all of it", {}}, hh{"WRITE host to host", {}}, gh{"WRITE GPU to host", {}},
      hg{"WRITE host to GPU", {}}, gg{"WRITE GPU to GPU", {}};
  for (int round = -20; round < kRounds; ++round) {
    const auto [until_first, until_last] = copies_a.out();
    const Ps into = copies_b.in();
    const std::array<std::pair<Times*, Ps>, 7> measured{{{&first, until_first},
                                                         {&out, until_last},
                                                         {&in, into},
                                                         {&hh, write_once(a, host_a, b, host_b)},
                                                         {&gh, write_once(a, gpu_a, b, host_b)},
                                                         {&hg, write_once(a, host_a, b, gpu_b)},
                                                         {&gg, write_once(a, gpu_a, b, gpu_b)}}};
    if (round < 0) continue;
    for (const auto& [times, time] : measured) times->all.push_back(time);
  }

  std::vector<std::byte> arrived(kBytes);
  cuda::check(cudaMemcpy(arrived.data(), gpu_b.data, kBytes, cudaMemcpyDefault), "read");
  if (std::any_of(arrived.begin(), arrived.end(), [](std::byte byte) { return byte != std::byte{1}; }))
    fail("what arrived is wrong");
  constexpr std::uint64_t kAll = std::uint64_t{kBytes} * 2 * kRounds;
  if (a.counter("gpu_bytes_read") < kAll || b.counter("gpu_bytes_written") < kAll)
    fail("the bytes went another way than this claims");
  if (a.counter("tx_sends") == 0) fail("these were no packets");

  fmt::print("256 KiB, RoCEv2 packets over the loopback interface, MTU 4096, {} GPUs, {} rounds\n", gpus, kRounds);
  fmt::print("{:<45} {:>8} {:>8}\n", "us", "p50", "p99");
  for (Times* const times : {&first, &out, &in, &hh, &gh, &hg, &gg}) {
    fmt::print("{:<45} {:>8.1f} {:>8.1f}\n", times->name, times->at(0.5), times->at(0.99));
  }
  fmt::print("build, CRC, send, receive, CRC, copy: {:.1f}; reading the GPU adds {:.1f}, writing it {:.1f}\n",
             hh.at(0.5), gh.at(0.5) - hh.at(0.5), hg.at(0.5) - hh.at(0.5));
  fmt::print("copies of the sender {}, of the receiver {}, waits {}; packets sent again {}\n", a.counter("gpu_copies"),
             b.counter("gpu_copies"), b.counter("gpu_settles"), a.counter("retransmitted_packets"));
}

}  // namespace
}  // namespace tensorwire

int main() {
  try {
    tensorwire::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_rdma: {}\n", error.what());
    return 1;
  }
}
