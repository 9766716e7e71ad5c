// Ways to memory of a GPU: what is said where one is closed, and which flush is owed, for machines that are not here.
#include "verbs/gpu_way.hpp"

#include <gtest/gtest.h>

#include <cerrno>

namespace tensorwire::verbs {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

GpuFacts good() {
  GpuFacts facts;
  facts.ordinal = 3;
  facts.model = "NVIDIA H100 80GB HBM3";
  facts.kernel = "6.1.0-18-amd64";
  facts.open_kernel_modules = facts.rdma_supported = facts.dmabuf_supported = true;
  facts.writes_ordering = 200;
  facts.flush_options = 1;
  facts.peermem_loaded = true;
  facts.bar1_bytes = 128ULL << 30;
  return facts;
}

struct ClosedWay {
  const char* name;
  void (*change)(GpuFacts&, Refusal&);
  const char* why;
  const char* remedy;
};
void PrintTo(const ClosedWay& way, std::ostream* out) { *out << way.name; }

struct GpuWayClosed : ::testing::TestWithParam<ClosedWay> {};

TEST_P(GpuWayClosed, IsExplained) {
  GpuFacts facts = good();
  Refusal refusal;
  GetParam().change(facts, refusal);
  const Explanation said = explain(refusal, facts, kMiB);
  EXPECT_NE(said.why.find(GetParam().why), std::string::npos) << said.why;
  EXPECT_NE(said.remedy.find(GetParam().remedy), std::string::npos) << said.remedy;
  EXPECT_EQ((said.why + said.remedy).find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    All, GpuWayClosed,
    ::testing::Values(
        ClosedWay{"GeForce", [](GpuFacts& f, Refusal&) { f.model = "NVIDIA GeForce RTX 4090"; }, "GeForce",
                  "host memory"},
        ClosedWay{"Integrated", [](GpuFacts& f, Refusal&) { f.rdma_supported = false; }, "no GPUDirect RDMA", "GB10"},
        ClosedWay{"ClosedModules", [](GpuFacts& f, Refusal&) { f.open_kernel_modules = false; },
                  "closed kernel modules", "nvidia-open"},
        ClosedWay{"OldKernel", [](GpuFacts& f, Refusal&) { f.kernel = "5.4.0-200-generic"; }, "5.4.0-200", "5.12"},
        ClosedWay{"NotExported", [](GpuFacts& f, Refusal&) { f.dmabuf_supported = false; }, "exports no DMA-BUF",
                  "515"},
        ClosedWay{"CudaRefuses", [](GpuFacts&, Refusal& r) { r.cuda = "CUDA_ERROR_INVALID_VALUE (1)"; },
                  "CUDA_ERROR_INVALID_VALUE", "gpuDirectRDMACapable"},
        ClosedWay{"DeviceTakesNone", [](GpuFacts&, Refusal& r) { r.errno_value = EOPNOTSUPP; }, "takes no DMA-BUF",
                  "rdma-core 34"},
        ClosedWay{"DmaBufNoMemory", [](GpuFacts&, Refusal& r) { r.errno_value = ENOMEM; }, "ENOMEM", "memlock"},
        ClosedWay{"DmaBufOther", [](GpuFacts&, Refusal& r) { r.errno_value = EIO; }, "EIO", "log"},
        ClosedWay{"NoModule",
                  [](GpuFacts& f, Refusal& r) {
                    f.peermem_loaded = false;
                    r.path = RegistrationPath::kPeerMemory;
                    r.errno_value = EFAULT;
                  },
                  "not loaded", "modprobe nvidia-peermem"},
        ClosedWay{"NoInterface",
                  [](GpuFacts&, Refusal& r) {
                    r.path = RegistrationPath::kPeerMemory;
                    r.errno_value = EINVAL;
                  },
                  "no peer memory interface", "MLNX_OFED"},
        ClosedWay{"Unknown",
                  [](GpuFacts&, Refusal& r) {
                    r.path = RegistrationPath::kPeerMemory;
                    r.errno_value = EFAULT;
                  },
                  "EFAULT", "modprobe"},
        ClosedWay{"SmallBar1",
                  [](GpuFacts& f, Refusal& r) {
                    f.bar1_bytes = kMiB / 4;
                    r.path = RegistrationPath::kPeerMemory;
                    r.errno_value = ENOMEM;
                  },
                  "BAR1, which has 256", "Above 4G"},
        ClosedWay{"FullBar1",
                  [](GpuFacts&, Refusal& r) {
                    r.path = RegistrationPath::kPeerMemory;
                    r.errno_value = ENOMEM;
                  },
                  "no room left", "nvidia-smi -q -d MEMORY"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(GpuWay, BothWaysAreToldInOneLine) {
  GpuFacts facts = good();
  facts.open_kernel_modules = false;
  facts.peermem_loaded = false;
  const Explanation both = explain(
      Refusal{}, Refusal{.path = RegistrationPath::kPeerMemory, .errno_value = EFAULT, .cuda = {}}, facts, kMiB);
  EXPECT_EQ(both.why,
            "by DMA-BUF: the NVIDIA driver's closed kernel modules export no DMA-BUF; by nvidia-peermem: the module "
            "nvidia-peermem is not loaded");
  EXPECT_EQ(both.remedy, "Install the open ones (nvidia-open); or: modprobe nvidia-peermem");
}

TEST(GpuWay, OneCauseOfBothIsToldOnce) {
  GpuFacts facts = good();
  facts.model = "NVIDIA GeForce RTX 4090";
  const Explanation both =
      explain(Refusal{}, Refusal{.path = RegistrationPath::kPeerMemory, .errno_value = 0, .cuda = {}}, facts, kMiB);
  EXPECT_EQ(both.why.find("by DMA-BUF"), std::string::npos);
}

TEST(GpuFlush, FollowsFromTheOrderingOfWrites) {
  GpuFacts facts = good();
  EXPECT_EQ(flush_rule(facts, false, false).flush, Flush::kNone);
  EXPECT_NE(flush_rule(facts, false, false).line.find("GPU 3: no flush"), std::string::npos);
  facts.writes_ordering = 100;
  EXPECT_EQ(flush_rule(facts, false, false).flush, Flush::kNone) << "ordered for the GPU itself";
  facts.writes_ordering = 0;
  EXPECT_EQ(flush_rule(facts, false, false).flush, Flush::kDriver);
  facts.flush_options = 2;  // only within streams
  EXPECT_EQ(flush_rule(facts, false, false).flush, Flush::kLoopbackRead);
  facts.writes_ordering.reset();
  facts.flush_options.reset();
  EXPECT_EQ(flush_rule(facts, false, false).flush, Flush::kLoopbackRead) << "what is not known is not relied on";
}

TEST(GpuFlush, AMappingThroughPcieIsFlushedByARead) {
  EXPECT_EQ(flush_rule(good(), false, true).flush, Flush::kLoopbackRead);
}

TEST(GpuFlush, TheSoftHcaOwesNone) {
  GpuFacts facts = good();
  facts.writes_ordering = 0;
  EXPECT_EQ(flush_rule(facts, true, false).flush, Flush::kNone);
}

}  // namespace
}  // namespace tensorwire::verbs
