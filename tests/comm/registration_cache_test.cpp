// The cache of registrations and memory of a GPU that is freed and allocated anew under it, over a pretended CUDA
// driver (tests/verbs/pretended_gpu).
#include "comm/registration_cache.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "base/cuda_driver.hpp"
#include "base/error.hpp"
#include "rank_processes.hpp"

namespace tensorwire::comm {
namespace {

constexpr std::size_t kBytes = 100'000;

void* allocate_on_gpu(const CudaDriver& driver, void* context) {
  const CudaSection section{driver, context};
  CudaDriver::Address address = 0;
  if (driver.memory_alloc(&address, kBytes) != 0) throw Error{"allocate", "the pretended driver refuses"};
  return reinterpret_cast<void*>(address);
}

std::string freed_under_the_cache() {
  if (::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) != nullptr) return {};  // the real one
  if (::dlopen(TW_PRETENDED_DRIVER, RTLD_NOW) == nullptr) throw Error{"load a pretended CUDA driver", ::dlerror()};
  const CudaDriver& driver = *cuda_driver_in_process();
  void* context = nullptr;
  if (driver.primary_retain(&context, 0) != 0) return "no context";

  const auto opened = verbs::Context::open({.device = "soft0", .gid_index = {}, .route_to = {}});
  RegistrationCache cache{verbs::ProtectionDomain::create(opened)};
  void* const first = allocate_on_gpu(driver, context);
  const std::uint32_t key = cache.key_of(first, kBytes);
  if (cache.key_of(first, kBytes) != key || cache.size() != 1) return "it is registered anew for each use";
  if (driver.memory_free(reinterpret_cast<std::uint64_t>(first)) != 0) return "not freed";
  void* const second = allocate_on_gpu(driver, context);
  if (second != first) return "this shows nothing: another place";
  const std::uint32_t anew = cache.key_of(second, kBytes);
  if (anew == key) return "the registration of freed memory was used again";
  if (cache.size() != 1) return "the old registration is still there";
  return cache.key_of(second, kBytes) == anew ? "" : "it is registered anew for each use";
}

TEST(RegistrationCache, NoticesThatMemoryOfAGpuIsSomebodyElses) {
  const auto results = run_ranks(1, [](bootstrap::Group&) { return freed_under_the_cache(); });
  EXPECT_EQ(results[0].exit_code, 0);
  EXPECT_EQ(results[0].text, "");
}

}  // namespace
}  // namespace tensorwire::comm
