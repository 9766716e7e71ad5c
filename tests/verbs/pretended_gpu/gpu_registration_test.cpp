// Registration of GPU memory, and writes into it, through CUDA's driver as the code calls it: over a pretended
// libcuda.so.1, because this runs where there is no GPU. What the real one says to the same calls is tests/gpu's.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "base/cuda_driver.hpp"
#include "base/error.hpp"
#include "pretended_cuda.hpp"
#include "verbs/completion_queue.hpp"
#include "verbs/gpudirect_mr.hpp"
#include "verbs/queue_pair.hpp"
#include "verbs/rdma_write.hpp"
#include "verbs/roce_qp.hpp"

namespace tensorwire::verbs {
namespace {

constexpr std::size_t kBytes = 300'000;
constexpr std::size_t kWholePages = (kBytes + 4095) / 4096 * 4096;
constexpr MemoryAccess kWritable{.local_write = true, .remote_write = true, .remote_read = true};

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) throw Error{"look into the pretended CUDA driver", name};
}

const test::PretendedCuda& pretended() {
  static const test::PretendedCuda found = [] {
    void* const library = ::dlopen(TW_PRETENDED_CUDA, RTLD_NOW);
    if (library == nullptr) throw Error{"load the pretended CUDA driver", ::dlerror()};
    test::PretendedCuda cuda{};
    find(library, "pretended_allocate_from_pool", cuda.allocate_from_pool);
    find(library, "pretended_write", cuda.write);
    find(library, "pretended_read", cuda.read);
    find(library, "pretended_export_dmabufs", cuda.export_dmabufs);
    find(library, "pretended_careless_calls", cuda.careless_calls);
    find(library, "pretended_copies", cuda.copies);
    return cuda;
  }();
  return found;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

struct GpuRegistration : ::testing::Test {
  GpuRegistration() { pretended().export_dmabufs(1); }
  ~GpuRegistration() override { EXPECT_EQ(pretended().careless_calls(), 0); }

  std::shared_ptr<Context> context = Context::open({.device = "soft0", .gid_index = {}, .route_to = {}});
  std::shared_ptr<ProtectionDomain> domain = ProtectionDomain::create(context);

  [[nodiscard]] MemoryRegion allocated() const {
    MemorySpan span;
    span.length = kBytes;
    span.kind = MemoryKind::kNewGpu;
    return register_gpu_memory_with_hca(domain, span, kWritable);
  }
  [[nodiscard]] MemoryRegion at(std::uint64_t address, std::size_t length) const {
    MemorySpan span;
    span.address = reinterpret_cast<void*>(address);
    span.length = length;
    return register_gpu_memory_with_hca(domain, span, kWritable);
  }
};

TEST_F(GpuRegistration, GoesByDmaBufWhoseDescriptorIsClosedAgain) {
  const MemoryRegion memory = allocated();
  const int before = open_descriptors();
  const MemoryRegion part = at(memory.address() + 4097, 100'001);  // misaligned on both sides
  EXPECT_EQ(part.path(), RegistrationPath::kDmaBuf);
  EXPECT_EQ(part.address(), memory.address() + 4097);
  EXPECT_EQ(part.flush(), Flush::kNone);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(GpuRegistration, GoesByTheAddressWhereNothingIsExported) {
  pretended().export_dmabufs(0);
  EXPECT_EQ(allocated().path(), RegistrationPath::kPeerMemory);
}

TEST_F(GpuRegistration, HostMemoryStaysHostMemory) {
  std::vector<std::byte> memory(kBytes);
  const MemoryRegion region = at(reinterpret_cast<std::uint64_t>(memory.data()), kBytes);
  EXPECT_EQ(region.path(), RegistrationPath::kHostPages);
  EXPECT_TRUE(region.still_valid());
}

TEST_F(GpuRegistration, APoolIsRefusedWithAWord) {
  const std::uint64_t pool = pretended().allocate_from_pool(kBytes);
  const std::string line = message_of([&] { (void)at(pool, kBytes); });
  EXPECT_NE(line.find("stream-ordered pool"), std::string::npos) << line;
  EXPECT_NE(line.find("GPU 0 memory"), std::string::npos) << line;
}

TEST_F(GpuRegistration, ARangeMayEndWithItsLastPageAndNotBehind) {
  const MemoryRegion memory = allocated();
  EXPECT_TRUE(at(memory.address(), kWholePages)) << "programs round to pages";
  const std::string line = message_of([&] { (void)at(memory.address() + 1, kWholePages); });
  EXPECT_NE(line.find("EFAULT"), std::string::npos) << line;
}

TEST_F(GpuRegistration, IsOverWhenTheMemoryIsSomebodyElses) {
  const CudaDriver& driver = *cuda_driver_in_process();
  void* context_of_gpu = nullptr;
  ASSERT_EQ(driver.primary_retain(&context_of_gpu, 0), 0);
  CudaDriver::Address address = 0;
  {
    const CudaSection section{driver, context_of_gpu};
    ASSERT_EQ(driver.memory_alloc(&address, kBytes), 0);
  }
  const MemoryRegion region = at(address, kBytes);
  EXPECT_TRUE(region.still_valid());
  ASSERT_EQ(driver.memory_free(address), 0);
  EXPECT_FALSE(region.still_valid());
  CudaDriver::Address anew = 0;
  {
    const CudaSection section{driver, context_of_gpu};
    ASSERT_EQ(driver.memory_alloc(&anew, kBytes), 0);
  }
  ASSERT_EQ(anew, address) << "the same place, as happens";
  EXPECT_FALSE(region.still_valid());
  EXPECT_TRUE(at(anew, kBytes).still_valid());
  ASSERT_EQ(driver.memory_free(anew), 0);
}

TEST_F(GpuRegistration, CanBeFlushedByTheDriver) { EXPECT_NO_THROW(allocated().flush_by_driver()); }

TEST_F(GpuRegistration, AGpuThatIsNotThereIsOneLine) {
  MemorySpan span;
  span.length = kBytes;
  span.kind = MemoryKind::kNewGpu;
  span.gpu = 7;
  const std::string line = message_of([&] { (void)register_gpu_memory_with_hca(domain, span, kWritable); });
  EXPECT_NE(line.find("GPU 7"), std::string::npos) << line;
  EXPECT_NE(line.find("no such GPU"), std::string::npos) << line;
}

TEST_F(GpuRegistration, WhatWasAllocatedHereIsFreedHere) {
  std::uint64_t address = 0;
  {
    const MemoryRegion region = allocated();
    address = region.address();
    EXPECT_TRUE(cuda_pointer(address));
  }
  EXPECT_FALSE(cuda_pointer(address));
}

// ---- messages

struct GpuWrites : GpuRegistration {
  struct End {
    std::shared_ptr<CompletionQueue> queue;
    std::unique_ptr<QueuePair> qp;
    MemoryRegion region;
    [[nodiscard]] ibv_wc completion() const {
      ibv_wc wc{};
      EXPECT_EQ(queue->wait({&wc, 1}, {.bound = 5 * kSecond, .spin = 50 * kMicrosecond}), 1);
      return wc;
    }
  };
  End make(SameHostLink link) const {
    End end;
    QpOptions options;
    options.link = link;
    end.queue = CompletionQueue::create(context, 256);
    end.qp = QueuePair::create(domain, end.queue, end.queue, options);
    end.region = allocated();
    return end;
  }
};

TEST_F(GpuWrites, AreInTheGpuWhenTheirImmediateComes) {
  for (const SameHostLink link : {SameHostLink::kAuto, SameHostLink::kPackets}) {
    const End a = make(link), b = make(link);
    transition_qp_to_rts(*b.qp, a.qp->address(), {});
    ASSERT_EQ(b.qp->post_empty_receives(7, 64), 0);
    transition_qp_to_rts(*a.qp, b.qp->address(), {});
    std::vector<unsigned char> sent(kBytes), there(kBytes);
    for (unsigned char round = 0; round < 20; ++round) {
      std::iota(sent.begin(), sent.end(), round);
      pretended().write(a.region.address(), sent.data(), kBytes);
      const int before = pretended().copies();
      WriteRequest request;
      request.local_address = a.region.address();
      request.local_key = a.region.lkey();
      request.length = kBytes;
      request.remote_address = b.region.address();
      request.remote_key = b.region.rkey();
      request.immediate = round;
      ASSERT_EQ(post_gpudirect_rdma_write(*a.qp, request), 0);
      ASSERT_EQ(b.completion().status, IBV_WC_SUCCESS);
      pretended().read(b.region.address(), there.data(), kBytes);
      ASSERT_EQ(there, sent) << "round " << int{round};
      EXPECT_GE(pretended().copies(), before + 2 * 4) << "out of the one and into the other";
      ASSERT_EQ(a.completion().status, IBV_WC_SUCCESS);
    }
  }
  EXPECT_GE(context->counter("gpu_bytes_read").value_or(0), 40 * kBytes);
  EXPECT_GE(context->counter("gpu_bytes_written").value_or(0), 40 * kBytes);
}

}  // namespace
}  // namespace tensorwire::verbs
