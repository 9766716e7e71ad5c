// Memory of a GPU where there is none: it is told from host memory, refused in one line, and the communicator goes on.
// On a machine with GPUs tests/gpu asks for more.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>

#include "base/cuda_driver.hpp"
#include "base/error.hpp"
#include "c_api_ranks.hpp"

namespace tensorwire::comm {
namespace {

/// Memory of GPU 0 of the pretended libcuda.so.1 (tests/verbs/pretended_gpu), which is loaded with it.
void* memory_of_pretended_gpu() {
  void* const driver = ::dlopen(TW_PRETENDED_DRIVER, RTLD_NOW);
  if (driver == nullptr) throw Error{"load a pretended CUDA driver", ::dlerror()};
  using Allocate = unsigned long long (*)(std::size_t bytes);
  const auto allocate = reinterpret_cast<Allocate>(::dlsym(driver, "pretended_allocate_from_pool"));
  if (allocate == nullptr) throw Error{"look into the pretended CUDA driver", ::dlerror()};
  return reinterpret_cast<void*>(allocate(4096));
}

void expect_line_with(twComm_t comm, std::string_view words) {
  const std::string line = twGetLastError(comm);
  if (line.find(words) == std::string::npos) throw Error{"read the line of an error", line};
}

TEST(GpuMemory, IsSeenOnceTheDriverIsInTheProcess) {
  const auto results = run_ranks(1, [](bootstrap::Group&) {
    if (::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) != nullptr) return std::string{};  // the real one
    int value = 0;
    if (cuda_device_of(&value)) return std::string{"memory of a GPU without a driver"};
    if (cuda_device_of(memory_of_pretended_gpu()) != 0) return std::string{"the driver was not asked"};
    return std::string{cuda_device_of(&value) ? "host memory is said to be a GPU's" : ""};
  });
  EXPECT_EQ(problems(results), "");
  EXPECT_EQ(results[0].text, "");
}

TEST(GpuMemory, IsRefusedInOneLineWithoutAGpuAndTheCommunicatorGoesOn) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    twComm_t comm = init_rank(group);
    std::array<float, 8> values{1};
    if (twCommInitGpu(comm, 0) == twSuccess) return std::string{};  // there is one
    expect_line_with(comm, "GPU");
    expect(twAllReduce(values.data(), values.data(), 8, twFloat32, twSum, comm, &values), twInvalidArgument,
           "a stream with host memory", comm);
    expect_line_with(comm, "twAllReduce: streams are for memory of a GPU");
    expect_success(twAllReduce(values.data(), values.data(), 8, twFloat32, twSum, comm, nullptr), "twAllReduce", comm);
    if (values[0] != 2) throw Error{"all-reduce", "the sum is wrong"};

    void* const on_gpu = memory_of_pretended_gpu();
    expect(twAllReduce(on_gpu, on_gpu, 8, twFloat32, twSum, comm, nullptr), twSystemError, "memory of a pretended GPU",
           comm);
    expect_line_with(comm, "GPU");
    expect(twSend(on_gpu, 8, twFloat32, 1 - group.rank(), comm, nullptr), twInvalidUsage, "a message", comm);
    expect_line_with(comm, "Call twCommInitGpu on all ranks before");
    expect_success(twCommDestroy(comm), "twCommDestroy");
    return std::string{};
  });
  EXPECT_EQ(problems(results), "");
}

}  // namespace
}  // namespace tensorwire::comm
