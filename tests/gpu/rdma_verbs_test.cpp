// Registration through verbs on real GPUs, over the drop-in library of the soft HCA: which way is taken, what the facts
// of the GPU are, and what is said of freed memory. And a process that ends while CUDA copies for it.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/cuda_driver.hpp"
#include "base/error.hpp"
#include "cuda/driver.cuh"
#include "gpu/ranks.hpp"
#include "gpu/rdma_end.hpp"
#include "verbs/gpu_facts.hpp"
#include "verbs/gpudirect_mr.hpp"

extern char** environ;

namespace tensorwire::test {
namespace {

constexpr std::size_t kVerbsBytes = 300'000;

struct GpuVerbs : ::testing::Test {
  void SetUp() override {
    SKIP_WITHOUT_GPU();
    cudaFree(nullptr);
    domain =
        verbs::ProtectionDomain::create(verbs::Context::open({.device = "soft0", .gid_index = {}, .route_to = {}}));
  }
  [[nodiscard]] verbs::MemoryRegion at(void* address, std::size_t bytes) const {
    verbs::MemorySpan span;
    span.address = address;
    span.length = bytes;
    return verbs::register_gpu_memory_with_hca(domain, span,
                                               {.local_write = true, .remote_write = true, .remote_read = true});
  }
  [[nodiscard]] std::string refusal_of(void* address, std::size_t bytes) const {
    try {
      (void)at(address, bytes);
    } catch (const Error& error) {
      return error.what();
    }
    return "registered";
  }
  std::shared_ptr<verbs::ProtectionDomain> domain;
};

TEST_F(GpuVerbs, FactsOfTheGpuAreRead) {
  const verbs::GpuFacts facts = verbs::read_gpu_facts(*cuda_driver_in_process(), 0);
  EXPECT_NE(facts.model.find("NVIDIA"), std::string::npos) << facts.model;
  EXPECT_FALSE(facts.kernel.empty());
  EXPECT_TRUE(facts.rdma_supported.has_value());
  EXPECT_TRUE(facts.dmabuf_supported.has_value());
  EXPECT_TRUE(facts.writes_ordering.has_value());
  EXPECT_TRUE(facts.flush_options.has_value());
  const auto said = [](const std::optional<bool>& fact) { return !fact ? "unknown" : *fact ? "yes" : "no"; };
  std::printf(
      "%s, kernel %s: open kernel modules %s, GPUDirect RDMA %s, DMA-BUF %s, peermem %s, BAR1 %llu MiB\n%s\n%s\n",
      facts.model.c_str(), facts.kernel.c_str(), said(facts.open_kernel_modules), said(facts.rdma_supported),
      said(facts.dmabuf_supported), facts.peermem_loaded ? "loaded" : "not loaded",
      static_cast<unsigned long long>(facts.bar1_bytes.value_or(0) >> 20),
      verbs::flush_rule(facts, false, false).line.c_str(), verbs::flush_rule(facts, true, false).line.c_str());
}

TEST_F(GpuVerbs, TakesDmaBufWhereItIsExportedAndTheAddressElse) {
  const DeviceBytes memory(kVerbsBytes);
  const verbs::MemoryRegion region = at(memory.data() + 4097, 100'001);
  const verbs::GpuFacts facts = verbs::read_gpu_facts(*cuda_driver_in_process(), 0);
  std::printf("registered by %s\n", std::string(verbs::name(region.path())).c_str());
  EXPECT_NE(region.path(), verbs::RegistrationPath::kHostPages);
  if (facts.dmabuf_supported == false) {
    EXPECT_EQ(region.path(), verbs::RegistrationPath::kPeerMemory);
  }
  EXPECT_TRUE(region.still_valid());
  EXPECT_EQ(region.flush(), verbs::Flush::kNone);
}

TEST_F(GpuVerbs, NoticesFreedMemory) {
  void* data = nullptr;
  cuda::check(cudaMalloc(&data, kVerbsBytes), "allocate");
  const verbs::MemoryRegion region = at(data, kVerbsBytes);
  EXPECT_TRUE(region.still_valid());
  cuda::check(cudaFree(data), "free");
  EXPECT_FALSE(region.still_valid());
  void* anew = nullptr;
  cuda::check(cudaMalloc(&anew, kVerbsBytes), "allocate again");
  EXPECT_FALSE(region.still_valid()) << (anew == data ? "at the same place" : "elsewhere");
  cudaFree(anew);
}

TEST_F(GpuVerbs, AllocatesAndFrees) {
  std::uint64_t address = 0;
  {
    verbs::MemorySpan span;
    span.length = kVerbsBytes;
    span.kind = verbs::MemoryKind::kNewGpu;
    const verbs::MemoryRegion region = verbs::register_gpu_memory_with_hca(domain, span, {});
    address = region.address();
    EXPECT_TRUE(cuda_pointer(address));
    cuda::check(cudaMemset(reinterpret_cast<void*>(address), 1, kVerbsBytes), "use it");
  }
  EXPECT_FALSE(cuda_pointer(address));
}

TEST_F(GpuVerbs, RefusesPoolsAndManagedMemoryWithAWord) {
  void* data = nullptr;
  cuda::check(cudaMallocAsync(&data, kVerbsBytes, nullptr), "allocate from a pool");
  cuda::check(cudaStreamSynchronize(nullptr), "wait");
  EXPECT_NE(refusal_of(data, kVerbsBytes).find("stream-ordered pool"), std::string::npos);
  cudaFreeAsync(data, nullptr);
  cuda::check(cudaMallocManaged(&data, kVerbsBytes), "allocate managed memory");
  EXPECT_NE(refusal_of(data, kVerbsBytes).find("managed"), std::string::npos);
  cudaFree(data);
}

// ---- a process that ends

constexpr const char* kEnds = "TENSORWIRE_TEST_RDMA_ENDS";

/// What the spawned program does: leaves main, by exit(), while messages run from GPU to GPU.
TEST(GpuRdmaChild, DISABLED_EndsInTheMiddle) {
  if (std::getenv(kEnds) == nullptr) GTEST_SKIP() << "only as the child of the test below";
  // Never destroyed: the Hcas' threads are at work when CUDA ends.
  auto* const a = new RdmaEnd(0, hca::testing::packets_only(), RdmaMemory::Kind::kMalloc, 0);
  auto* const b = new RdmaEnd(1, hca::testing::packets_only(), RdmaMemory::Kind::kMalloc, 0);
  ASSERT_EQ(a->end.connect(b->end.address()), 0);
  ASSERT_EQ(b->end.connect(a->end.address()), 0);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(a->post(rdma::WrOpcode::kWrite, 0, RdmaEnd::kBytes, *b, 0), 0);
  ASSERT_EQ(a->next_status(), rdma::WcStatus::kSuccess);
  std::exit(0);
}

TEST(GpuRdmaProcess, MayEndWhileItsBytesAreCopied) {
  SKIP_WITHOUT_GPU();
  ::setenv(kEnds, "1", 1);
  for (int round = 0; round < 5; ++round) {
    std::string program = "/proc/self/exe", filter = "--gtest_filter=GpuRdmaChild.*",
                disabled = "--gtest_also_run_disabled_tests";
    char* arguments[] = {program.data(), filter.data(), disabled.data(), nullptr};
    pid_t child = -1;
    ASSERT_EQ(::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ), 0);
    int status = -1;
    for (int i = 0; i < 3000 && ::waitpid(child, &status, WNOHANG) == 0; ++i) ::usleep(10'000);
    if (status == -1) ::kill(child, SIGKILL);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status) << " in round " << round;
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }
  ::unsetenv(kEnds);
}

}  // namespace
}  // namespace tensorwire::test
