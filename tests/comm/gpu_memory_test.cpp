// Memory of a GPU where there is none: it is told from host memory, refused in one line, and the communicator goes on.
// On a machine with GPUs tests/gpu asks for more.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>

#include "c_api_ranks.hpp"
#include "comm/gpu/pointer.hpp"

namespace tensorwire::comm {
namespace {

/// A libcuda.so.1 that takes every address for memory of GPU 3.
void load_pretended_driver() {
  if (::dlopen(TW_PRETENDED_CUDA, RTLD_NOW) == nullptr) throw Error{"load a pretended CUDA driver", ::dlerror()};
}

void expect_line_with(twComm_t comm, std::string_view words) {
  const std::string line = twGetLastError(comm);
  if (line.find(words) == std::string::npos) throw Error{"read the line of an error", line};
}

TEST(GpuMemory, IsSeenOnceTheDriverIsInTheProcess) {
  const auto results = run_ranks(1, [](bootstrap::Group&) {
    if (::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) != nullptr) return std::string{};  // the real one
    int value = 0;
    if (gpu_of(&value)) return std::string{"memory of a GPU without a driver"};
    load_pretended_driver();
    return std::string{gpu_of(&value) == 3 ? "" : "the driver was not asked"};
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

    load_pretended_driver();
    expect(twAllReduce(values.data(), values.data(), 8, twFloat32, twSum, comm, nullptr), twSystemError,
           "memory of a pretended GPU", comm);
    expect_line_with(comm, "GPU");
    expect(twSend(values.data(), 8, twFloat32, 1 - group.rank(), comm, nullptr), twInvalidUsage, "a message", comm);
    expect_line_with(comm, "Call twCommInitGpu on all ranks before");
    expect_success(twCommDestroy(comm), "twCommDestroy");
    return std::string{};
  });
  EXPECT_EQ(problems(results), "");
}

}  // namespace
}  // namespace tensorwire::comm
