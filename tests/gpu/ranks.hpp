// Ranks as threads of the test, spread over the GPUs that there are, each with a stream, a communicator and tensors of
// its own; and what an all-reduce of those tensors must give, bit for bit.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/communicator.hpp"

namespace tensorwire::test {

/// 0 where there is no driver.
[[nodiscard]] int gpu_count();

#define SKIP_WITHOUT_GPU() \
  if (tensorwire::test::gpu_count() == 0) GTEST_SKIP() << "there is no GPU here"

void expect_ok(cudaError_t error, const char* what);

/// Where the threads of a test wait for each other; ends the test's wait after a minute.
class Crossing {
 public:
  /// @param beyond what the last of them does before all go on: waits for those of other processes
  explicit Crossing(int ranks, std::function<void()> beyond = {}) : ranks_(ranks), beyond_(std::move(beyond)) {}
  void wait();
  /// Everyone's bytes to everyone: a cuda::Exchange.
  std::vector<cuda::Bytes> exchange(int rank, std::span<const std::byte> mine);

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  int ranks_;
  std::function<void()> beyond_;
  int here_ = 0;
  std::uint64_t turn_ = 0;
  std::vector<cuda::Bytes> given_;
};

/// Memory of the current device, with its end kept from what follows it.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes);
  ~DeviceBytes();
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

struct Rank {
  int rank;
  int ranks;
  cudaStream_t stream;
  cuda::Communicator& communicator;
  Crossing& crossing;

  void synchronize() const { expect_ok(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }
  /// Waits for the stream first: a copy to pageable memory that still has to wait for a kernel keeps other threads of
  /// the process from launching on that GPU, and so the rank from starting that the kernel waits for.
  void read(std::vector<std::byte>& to, const std::byte* from) const {
    synchronize();
    expect_ok(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, stream), "copy out");
    synchronize();
  }
};

/// How many ranks, and where what they share lies.
struct Setting {
  int ranks;
  cuda::Home scratch = cuda::Home::kGpu;

  [[nodiscard]] cuda::CommunicatorOptions options() const {
    cuda::CommunicatorOptions options;
    options.operation_bound = 5 * kSecond;
    options.scratch = scratch;
    return options;
  }
};

/// Runs `body` as each of the ranks. `options`: what all ranks have in common.
void as_ranks(int ranks, const cuda::CommunicatorOptions& options, const std::function<void(Rank&)>& body);

/// What rank `rank` has in a case: bits of all kinds, NaNs and infinities among them, and many of like magnitude, whose
/// sums are rounded. The same for the same seed.
[[nodiscard]] std::vector<std::byte> input_of(std::uint64_t seed, int rank, std::size_t count, collective::DType dtype);
/// The result, from the CPU's reduction in rank order; of several hosts, of as many consecutive ranks each, in the
/// bracketing of the hierarchical path: each host's first, then over them.
[[nodiscard]] std::vector<std::byte> expected_of(std::uint64_t seed, int ranks, std::size_t count,
                                                 collective::DType dtype, collective::Op op, int hosts = 1);

/// Tensors of a decode or prefill step: tokens x hidden. All of them for two ranks; of more, which may share GPUs, a
/// part.
struct TokenShape {
  std::size_t tokens, hidden;
};
[[nodiscard]] std::vector<TokenShape> token_shapes(int ranks);

/// a + b, bf16, rounded once.
[[nodiscard]] std::vector<std::byte> sum_of_two(const std::vector<std::byte>& a, const std::vector<std::byte>& b);

}  // namespace tensorwire::test
