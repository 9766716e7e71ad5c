// RDMA of the soft HCA with memory of real GPUs, by CUDA's own copies: what tests/softhca/e2e/gpu_memory_test.cpp shows
// over a double. Two Hcas in this process, on two GPUs where there are two, over packets and over the same-host link.
// Each test says by counters that bytes went the way they claim.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/cuda_driver.hpp"
#include "cuda/driver.cuh"
#include "gpu/delay.hpp"
#include "gpu/ranks.hpp"
#include "gpu/rdma_end.hpp"

namespace tensorwire::test {
namespace {

using Kind = RdmaMemory::Kind;
using rdma::WcStatus;
using rdma::WrOpcode;

enum class RdmaWay : std::uint8_t { kPackets, kSameHost, kLossyPackets };

hca::HcaOptions rdma_options(RdmaWay way, std::uint64_t seed) {
  if (way == RdmaWay::kPackets) return hca::testing::packets_only();
  if (way == RdmaWay::kSameHost) return {};
  return hca::testing::faulty("drop=2%,reorder=2%,corrupt=2%", seed);
}

int other_gpu() { return gpu_count() > 1 ? 1 : 0; }

struct RdmaPair {
  RdmaEnd a, b;
  RdmaPair(RdmaWay way, Kind from, Kind to)
      : a(0, rdma_options(way, 1), from, 0), b(1, rdma_options(way, 2), to, other_gpu()) {
    if (a.end.connect(b.end.address()) != 0 || b.end.connect(a.end.address()) != 0) throw std::runtime_error("connect");
  }
  /// From `from` here to `to` there, with 64 bytes around it that must stay as they are.
  void write(std::uint64_t from, std::uint64_t to, std::uint32_t bytes) {
    const std::vector<std::byte> sent = random_bytes(bytes, from + to + bytes);
    a.memory.write(from, sent);
    b.memory.write(to - 64, std::vector<std::byte>(bytes + 128, std::byte{0x5a}));
    ASSERT_EQ(b.end.post_receives(1), 0);
    ASSERT_EQ(a.post(WrOpcode::kWriteImm, from, bytes, b, to), 0);
    ASSERT_EQ(b.next_status(), WcStatus::kSuccess);
    std::vector<std::byte> expected(64, std::byte{0x5a});
    expected.insert(expected.end(), sent.begin(), sent.end());
    expected.insert(expected.end(), 64, std::byte{0x5a});
    EXPECT_EQ(b.memory.read(to - 64, bytes + 128), expected) << bytes << " bytes";
    ASSERT_EQ(a.next_status(), WcStatus::kSuccess);
  }
};

// ---- kinds of memory, kinds of messages

struct GpuRdma : ::testing::TestWithParam<std::tuple<RdmaWay, Kind, Kind>> {
  void SetUp() override { SKIP_WITHOUT_GPU(); }
  [[nodiscard]] static std::unique_ptr<RdmaPair> pair() {
    const auto [way, from, to] = GetParam();
    return std::make_unique<RdmaPair>(way, from, to);
  }
};

TEST_P(GpuRdma, WritesOfAnySizeAndAlignment) {
  const auto p = pair();
  EXPECT_EQ(p->a.end.hca->link_description(p->a.end.qp) == "same-host link",
            std::get<0>(GetParam()) == RdmaWay::kSameHost);
  std::uint64_t sum = 0;
  for (const std::uint32_t bytes : {1U, 4096U, 4097U, 65'536U, 262'144U, 1'048'579U}) {
    ASSERT_NO_FATAL_FAILURE(p->write(0, 64, bytes));
    ASSERT_NO_FATAL_FAILURE(p->write(3, 4099, bytes));
    sum += 2 * bytes;
  }
  if (p->a.memory.on_gpu()) {
    EXPECT_GE(p->a.end.counter("gpu_bytes_read"), sum);
  }
  if (p->b.memory.on_gpu()) {
    EXPECT_GE(p->b.end.counter("gpu_bytes_written"), sum);
    EXPECT_GT(p->b.end.counter("gpu_settles"), 0U);
  } else {
    EXPECT_EQ(p->b.end.counter("gpu_bytes_written"), 0U);
  }
}

TEST_P(GpuRdma, SendsReadsAndAtomics) {
  const auto p = pair();
  for (const std::uint32_t bytes : {8U, 5000U, 300'000U}) {
    const std::vector<std::byte> sent = random_bytes(bytes, bytes);
    p->a.memory.write(17, sent);
    ASSERT_EQ(p->b.post_receive(33, bytes), 0);
    ASSERT_EQ(p->a.post(WrOpcode::kSend, 17, bytes, p->b, 0), 0);
    ASSERT_EQ(p->b.next_status(), WcStatus::kSuccess);
    EXPECT_EQ(p->b.memory.read(33, bytes), sent) << bytes << " bytes sent";
    ASSERT_EQ(p->a.next_status(), WcStatus::kSuccess);

    const std::vector<std::byte> there = random_bytes(bytes, bytes + 1);
    p->b.memory.write(1'000'003, there);
    ASSERT_EQ(p->a.post(WrOpcode::kRead, 700'001, bytes, p->b, 1'000'003), 0);
    ASSERT_EQ(p->a.next_status(), WcStatus::kSuccess);
    EXPECT_EQ(p->a.memory.read(700'001, bytes), there) << bytes << " bytes read";
  }
  std::uint64_t word = 1000;
  p->b.memory.write(4096, std::as_bytes(std::span{&word, 1}));
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(p->a.post(WrOpcode::kFetchAdd, 8, 8, p->b, 4096, 7), 0);
    ASSERT_EQ(p->a.next_status(), WcStatus::kSuccess);
    std::memcpy(&word, p->a.memory.read(8, 8).data(), 8);
    ASSERT_EQ(word, 1000 + 7 * i);
  }
  std::memcpy(&word, p->b.memory.read(4096, 8).data(), 8);
  EXPECT_EQ(word, 1140U);
}

TEST_P(GpuRdma, ManyMessagesOneBehindTheOther) {
  const auto p = pair();
  constexpr std::uint32_t kBytes = 40'000;
  constexpr std::uint32_t kMessages = 40;
  const std::vector<std::byte> sent = random_bytes(kBytes * kMessages, 5);
  p->a.memory.write(0, sent);
  ASSERT_EQ(p->b.end.post_receives(kMessages), 0);
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(p->a.post(WrOpcode::kWriteImm, std::uint64_t{i} * kBytes, kBytes, p->b, std::uint64_t{i} * kBytes), 0);
  }
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(p->b.next_status(), WcStatus::kSuccess);
    const std::vector<std::byte> there = p->b.memory.read(std::size_t{i} * kBytes, kBytes);
    ASSERT_TRUE(std::equal(there.begin(), there.end(), sent.begin() + i * kBytes)) << i << ", at its completion";
  }
  for (std::uint32_t i = 0; i < kMessages; ++i) ASSERT_EQ(p->a.next_status(), WcStatus::kSuccess);
}

constexpr std::tuple<RdmaWay, Kind, Kind> kCombinations[] = {
    {RdmaWay::kPackets, Kind::kMalloc, Kind::kMalloc},       {RdmaWay::kPackets, Kind::kVirtual, Kind::kVirtual},
    {RdmaWay::kPackets, Kind::kHost, Kind::kMalloc},         {RdmaWay::kPackets, Kind::kMalloc, Kind::kHost},
    {RdmaWay::kPackets, Kind::kPageLocked, Kind::kVirtual},  {RdmaWay::kSameHost, Kind::kMalloc, Kind::kMalloc},
    {RdmaWay::kSameHost, Kind::kHost, Kind::kMalloc},        {RdmaWay::kSameHost, Kind::kVirtual, Kind::kHost},
    {RdmaWay::kLossyPackets, Kind::kMalloc, Kind::kVirtual},
};
std::string combination_name(const ::testing::TestParamInfo<std::tuple<RdmaWay, Kind, Kind>>& combination) {
  const auto [way, from, to] = combination.param;
  const std::string by = way == RdmaWay::kPackets    ? "Packets"
                         : way == RdmaWay::kSameHost ? "SameHostLink"
                                                     : "LossyPackets";
  return by + name(from) + "To" + name(to);
}
INSTANTIATE_TEST_SUITE_P(Memory, GpuRdma, ::testing::ValuesIn(kCombinations), combination_name);

// ---- registration

struct GpuRegistration : ::testing::Test {
  void SetUp() override {
    SKIP_WITHOUT_GPU();
    end = std::make_unique<RdmaEnd>(0, hca::testing::packets_only(), Kind::kMalloc, 0);
  }
  int register_at(const void* address, std::size_t bytes) const {
    std::uint32_t key = 0;
    const auto at = reinterpret_cast<std::uint64_t>(address);
    const int error = end->end.hca->register_memory(end->end.pd, at, bytes, at, hca::testing::kEveryAccess, key);
    if (error == 0) end->end.hca->deregister_memory(key);
    return error;
  }
  std::unique_ptr<RdmaEnd> end;
};

TEST_F(GpuRegistration, CudaSaysWhoseAnAddressIs) {
  const auto known = cuda_pointer(end->memory.address() + 100);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->kind, CudaPointer::Kind::kDevice);
  EXPECT_EQ(known->device, 0);
  EXPECT_NE(known->buffer_id, 0U);
  EXPECT_EQ(known->range_start, end->memory.address());
  EXPECT_EQ(known->range_bytes, end->memory.size());
  EXPECT_GE(known->mapping_end, known->range_start + known->range_bytes);
  EXPECT_TRUE(known->mapped);
  EXPECT_FALSE(known->from_pool);
  int on_the_stack = 0;
  EXPECT_FALSE(cuda_pointer(reinterpret_cast<std::uint64_t>(&on_the_stack)));
}

TEST_F(GpuRegistration, AllOfItMustBeAllocated) {
  const auto* const data = reinterpret_cast<const std::byte*>(end->memory.address());
  EXPECT_EQ(register_at(data + 1, RdmaEnd::kBytes - 1), 0);
  EXPECT_EQ(register_at(data + 1, RdmaEnd::kBytes), EFAULT);
}

TEST_F(GpuRegistration, MemoryOfAPoolIsRefused) {
  void* data = nullptr;
  cuda::check(cudaMallocAsync(&data, 1 << 20, nullptr), "allocate from a pool");
  cuda::check(cudaStreamSynchronize(nullptr), "wait");
  EXPECT_EQ(register_at(data, 1 << 20), EINVAL);
  cudaFreeAsync(data, nullptr);
}

TEST_F(GpuRegistration, ManagedMemoryIsRefused) {
  void* data = nullptr;
  cuda::check(cudaMallocManaged(&data, 1 << 20), "allocate managed memory");
  EXPECT_EQ(register_at(data, 1 << 20), EFAULT);
  cudaFree(data);
}

TEST_F(GpuRegistration, FreedMemoryIsAnErrorAndNotSomebodyElses) {
  auto sender = std::make_unique<RdmaEnd>(1, hca::testing::packets_only(), Kind::kHost, 0);
  ASSERT_EQ(sender->end.connect(end->end.address()), 0);
  ASSERT_EQ(end->end.connect(sender->end.address()), 0);
  const std::uint64_t at = end->memory.address();
  end->memory.free();
  void* anew = nullptr;  // most likely at the same place
  cuda::check(cudaMalloc(&anew, RdmaEnd::kBytes), "allocate again");
  cuda::check(cudaMemset(anew, 3, RdmaEnd::kBytes), "fill");
  RecordProperty("same_place", reinterpret_cast<std::uint64_t>(anew) == at ? "yes" : "no");
  const rdma::Sge sge{sender->memory.address(), 100'000, sender->key};
  rdma::SendWr wr;
  wr.opcode = WrOpcode::kWriteImm;
  wr.signaled = true;
  wr.remote_address = at;
  wr.rkey = end->key;
  wr.sges = {&sge, 1};
  ASSERT_EQ(end->end.post_receives(1), 0);
  ASSERT_EQ(sender->end.hca->post_send(sender->end.qp, wr, false), 0);
  EXPECT_EQ(sender->next_status(), WcStatus::kRemoteOperationError);
  std::vector<std::byte> there(RdmaEnd::kBytes);
  cuda::check(cudaMemcpy(there.data(), anew, there.size(), cudaMemcpyDefault), "read");
  EXPECT_TRUE(std::all_of(there.begin(), there.end(), [](std::byte byte) { return byte == std::byte{3}; }));
  cudaFree(anew);
}

TEST_F(GpuRegistration, ADmaBufOfCudaIsTaken) {
  const CudaDriver* const driver = cuda_driver_in_process();
  ASSERT_NE(driver, nullptr);
  int fd = -1;
  const int exported =
      driver->export_range == nullptr ? -1 : driver->export_range(&fd, end->memory.address(), RdmaEnd::kBytes, 1, 0);
  if (exported != 0) GTEST_SKIP() << "this driver exports no DMA-BUF: " << driver->error_text(exported);
  hca::Hca& device = *end->end.hca;
  std::uint32_t key = 0;
  const std::uint64_t at = end->memory.address() + 4096;
  EXPECT_EQ(device.register_dmabuf(end->end.pd, fd, 4096, 8192, at, hca::testing::kEveryAccess, key), 0);
  EXPECT_EQ(device.deregister_memory(key), 0);
  EXPECT_EQ(device.register_dmabuf(end->end.pd, fd, 4096, RdmaEnd::kBytes, at, hca::testing::kEveryAccess, key), EINVAL)
      << "beyond its end";
  ::close(fd);
}

// ---- beside what else the GPU does

/// A kernel runs for a second; a WRITE from GPU to GPU does not wait for it.
TEST(GpuRdmaBeside, AKernelThatRunsHoldsNothingUp) {
  SKIP_WITHOUT_GPU();
  RdmaPair p(RdmaWay::kPackets, Kind::kMalloc, Kind::kMalloc);
  const std::vector<std::byte> sent = random_bytes(262'144, 1);
  p.a.memory.write(0, sent);
  ASSERT_EQ(p.b.end.post_receives(1), 0);
  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
  load_delay();
  delay(1'000'000'000, stream);
  ASSERT_EQ(p.a.post(WrOpcode::kWriteImm, 0, 262'144, p.b, 0), 0);
  EXPECT_EQ(p.b.next_status(), WcStatus::kSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady) << "the kernel is still running";
  cuda::check(cudaStreamSynchronize(stream), "wait");
  EXPECT_EQ(p.b.memory.read(0, sent.size()), sent);
  cudaStreamDestroy(stream);
}

/// Nor do copies of the program that wait for a kernel, in as many streams as there are hardware queues and more.
TEST(GpuRdmaBeside, CopiesThatWaitForKernelsHoldNothingUp) {
  SKIP_WITHOUT_GPU();
  RdmaPair p(RdmaWay::kPackets, Kind::kMalloc, Kind::kMalloc);
  const std::vector<std::byte> sent = random_bytes(262'144, 4);
  p.a.memory.write(0, sent);
  ASSERT_EQ(p.b.end.post_receives(1), 0);
  for (int device = 0; device <= other_gpu(); ++device) {
    const cuda::OnDevice current(device);
    load_delay();
  }
  constexpr std::size_t kCopied = 1 << 20;
  struct Work {
    int device;
    cudaStream_t stream = nullptr;
    void* host = nullptr;
    void* device_memory = nullptr;
  };
  std::vector<Work> all;
  for (int i = 0; i < 40; ++i) all.push_back({.device = i % (other_gpu() + 1)});
  for (Work& work : all) {  // first what may wait for the GPU
    const cuda::OnDevice current(work.device);
    cuda::check(cudaStreamCreateWithFlags(&work.stream, cudaStreamNonBlocking), "make a stream");
    cuda::check(cudaMallocHost(&work.host, kCopied), "allocate");
    cuda::check(cudaMalloc(&work.device_memory, kCopied), "allocate");
  }
  for (Work& work : all) {
    const cuda::OnDevice current(work.device);
    delay(1'500'000'000, work.stream);
    cuda::check(cudaMemcpyAsync(work.host, work.device_memory, kCopied, cudaMemcpyDeviceToHost, work.stream), "copy");
    cuda::check(cudaMemcpyAsync(work.device_memory, work.host, kCopied, cudaMemcpyHostToDevice, work.stream), "copy");
  }
  ASSERT_EQ(p.a.post(WrOpcode::kWriteImm, 0, 262'144, p.b, 0), 0);
  EXPECT_EQ(p.b.next_status(), WcStatus::kSuccess);
  EXPECT_EQ(cudaStreamQuery(all.back().stream), cudaErrorNotReady) << "the program's work is still waiting";
  for (const Work& work : all) {
    const cuda::OnDevice current(work.device);
    cuda::check(cudaStreamSynchronize(work.stream), "wait");
    cudaFree(work.device_memory);
    cudaFreeHost(work.host);
    cudaStreamDestroy(work.stream);
  }
  EXPECT_EQ(p.b.memory.read(0, sent.size()), sent);
}

/// In global mode no thread of the process may make an unsafe call of CUDA; ours are made so that they are none.
TEST(GpuRdmaBeside, ACaptureInAnotherThreadGoesOn) {
  SKIP_WITHOUT_GPU();
  RdmaPair p(RdmaWay::kPackets, Kind::kMalloc, Kind::kMalloc);
  const std::vector<std::byte> sent = random_bytes(100'000, 2);
  p.a.memory.write(0, sent);
  const DeviceBytes captured(1 << 16);
  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
  load_delay();
  const std::uint64_t read_before = p.a.end.counter("gpu_bytes_read");
  cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin a capture");
  std::thread traffic([&] {  // another thread than the one that captures, with the Hcas' own beside it
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(p.b.end.post_receives(1), 0);
      EXPECT_EQ(p.a.post(WrOpcode::kWriteImm, 0, 100'000, p.b, 0), 0);
      EXPECT_EQ(p.b.next_status(), WcStatus::kSuccess);
      EXPECT_EQ(p.a.next_status(), WcStatus::kSuccess);
    }
  });
  traffic.join();
  // The thread that captures makes progress, too: its own mode is put aside for the while.
  EXPECT_EQ(p.b.end.post_receives(1), 0);
  EXPECT_EQ(p.a.post(WrOpcode::kWriteImm, 0, 100'000, p.b, 0), 0);
  EXPECT_EQ(p.b.next_status(), WcStatus::kSuccess);
  EXPECT_EQ(cudaMemsetAsync(captured.data(), 7, captured.size(), stream), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess) << "the capture was broken";
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_GE(p.a.end.counter("gpu_bytes_read"), read_before + 21 * 100'000);
  EXPECT_EQ(p.b.memory.read(0, sent.size()), sent);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

/// With the fault, a completion comes before its bytes; without a flush they are missing.
TEST(GpuRdmaBeside, LateWritesAreMissingUntilTheyAreFlushed) {
  SKIP_WITHOUT_GPU();
  RdmaEnd a(0, hca::testing::packets_only(), Kind::kMalloc, 0);
  RdmaEnd b(1, hca::testing::faulty("gpu_write_late=3s", 1), Kind::kMalloc, other_gpu());
  hca::testing::Endpoint self{b.end.hca};
  ASSERT_EQ(a.end.connect(b.end.address()), 0);
  ASSERT_EQ(b.end.connect(a.end.address()), 0);
  ASSERT_EQ(self.connect(self.address()), 0);
  const std::vector<std::byte> sent = random_bytes(262'144, 3);
  a.memory.write(0, sent);
  ASSERT_EQ(b.end.post_receives(1), 0);
  ASSERT_EQ(a.post(WrOpcode::kWriteImm, 0, 262'144, b, 0), 0);
  ASSERT_EQ(b.next_status(), WcStatus::kSuccess);
  EXPECT_NE(b.memory.read(0, sent.size()), sent) << "no flush, no bytes";
  std::uint32_t key = 0;
  const std::uint64_t at = b.memory.address();
  ASSERT_EQ(self.hca->register_memory(self.pd, at, 8, at, hca::testing::kEveryAccess, key), 0);
  ASSERT_EQ(self.read({.ipv4 = 0, .qpn = 0, .psn = 0, .buffer = at, .rkey = key}, 0, 8, 0), 0);
  ASSERT_TRUE(self.next());
  EXPECT_EQ(b.memory.read(0, sent.size()), sent);
  EXPECT_EQ(self.hca->deregister_memory(key), 0);
}

}  // namespace
}  // namespace tensorwire::test
