#include "gpu/ranks.hpp"

#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

#include "base/error.hpp"
#include "base/random.hpp"
#include "collective/reduce.hpp"
#include "gpu/delay.hpp"

namespace tensorwire::test {

int gpu_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

void expect_ok(cudaError_t error, const char* what) {
  EXPECT_EQ(error, cudaSuccess) << what << ": " << cudaGetErrorString(error);
}

void Crossing::wait() {
  std::unique_lock lock(mutex_);
  const std::uint64_t turn = turn_;
  if (++here_ == ranks_) {
    if (beyond_) beyond_();
    here_ = 0;
    ++turn_;
    all_here_.notify_all();
    return;
  }
  if (!all_here_.wait_for(lock, std::chrono::seconds(60), [&] { return turn_ != turn; })) {
    throw Error("wait for the other threads of a test", "one did not come");
  }
}

std::vector<cuda::Bytes> Crossing::exchange(int rank, std::span<const std::byte> mine) {
  {
    const std::lock_guard lock(mutex_);
    given_.resize(static_cast<std::size_t>(ranks_));
    given_[static_cast<std::size_t>(rank)].assign(mine.begin(), mine.end());
  }
  wait();
  std::vector<cuda::Bytes> all = given_;
  wait();
  return all;
}

DeviceBytes::DeviceBytes(std::size_t bytes) : bytes_(bytes) {
  void* memory = nullptr;
  expect_ok(cudaMalloc(&memory, bytes), "cudaMalloc");
  data_ = static_cast<std::byte*>(memory);
}
DeviceBytes::~DeviceBytes() { cudaFree(data_); }

void as_ranks(int ranks, const cuda::CommunicatorOptions& options, const std::function<void(Rank&)>& body) {
  Crossing crossing(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        cuda::CommunicatorOptions mine = options;
        mine.rank = rank;
        mine.ranks = ranks;
        mine.device = rank % gpu_count();
        mine.exchange = [&, rank](std::span<const std::byte> bytes) { return crossing.exchange(rank, bytes); };
        expect_ok(cudaSetDevice(mine.device), "cudaSetDevice");
        load_delay();
        cuda::Communicator communicator(mine);
        cudaStream_t stream = nullptr;
        expect_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
        Rank self{rank, ranks, stream, communicator, crossing};
        body(self);
        expect_ok(cudaStreamSynchronize(stream), "the last operation");
        crossing.wait();
        expect_ok(cudaStreamDestroy(stream), "cudaStreamDestroy");
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::byte> input_of(std::uint64_t seed, int rank, std::size_t count, collective::DType dtype) {
  const std::size_t element = collective::element_bytes(dtype);
  std::vector<std::byte> bytes((count * element + 7) / 8 * 8);
  Random random(mix64(seed) + static_cast<std::uint64_t>(rank));
  // Sign and mantissa stay random, exponents become 1.0's: of every second word of 8 bytes, and of two in three
  // tensors.
  const std::uint64_t keep = dtype == collective::DType::kFloat32   ? 0x807fffff807fffff
                             : dtype == collective::DType::kFloat16 ? 0x83ff83ff83ff83ff
                                                                    : 0x807f807f807f807f;
  const std::uint64_t one = dtype == collective::DType::kFloat16 ? 0x3c003c003c003c00 : 0x3f803f803f803f80;
  const std::uint64_t one_of_type = dtype == collective::DType::kFloat32 ? 0x3f8000003f800000 : one;
  const bool all_kinds = seed % 3 == 0;
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::uint64_t word = random.next();
    if (dtype != collective::DType::kInt32 && (!all_kinds || at % 16 == 0)) word = (word & keep) | one_of_type;
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
  bytes.resize(count * element);
  return bytes;
}

namespace {

std::vector<std::byte> reduced(const std::vector<std::vector<std::byte>>& inputs, collective::DType dtype,
                               collective::Op op, int divisor) {
  std::vector<const std::byte*> operands;
  for (const auto& input : inputs) operands.push_back(input.data());
  std::vector<std::byte> output(inputs.front().size());
  collective::reduce({dtype, op, static_cast<std::uint32_t>(divisor)}, operands, output.data(), nullptr,
                     output.size() / collective::element_bytes(dtype));
  return output;
}

}  // namespace

std::vector<std::byte> expected_of(std::uint64_t seed, int ranks, std::size_t count, collective::DType dtype,
                                   collective::Op op, int hosts) {
  using collective::Op;
  if (dtype == collective::DType::kInt32 && op == Op::kAverage) hosts = 1;
  const int each = ranks / hosts;
  std::vector<std::vector<std::byte>> sums;
  for (int host = 0; host < hosts; ++host) {
    std::vector<std::vector<std::byte>> inputs;
    for (int local = 0; local < each; ++local) inputs.push_back(input_of(seed, host * each + local, count, dtype));
    if (hosts == 1) return reduced(inputs, dtype, op, ranks);
    sums.push_back(reduced(inputs, dtype, op == Op::kMax ? op : Op::kSum, 1));
  }
  return reduced(sums, dtype, op, ranks);
}

std::vector<TokenShape> token_shapes(int ranks) {
  std::vector<TokenShape> shapes;
  for (const std::size_t tokens : {1U, 4U, 16U, 80U, 256U, 512U, 2048U, 8192U}) {
    for (const std::size_t hidden : {4096U, 6144U, 8192U}) {
      const bool is_kept = ranks == 2 || (tokens <= 2048 && (tokens + hidden / 2048) % 3 == 0);
      if (is_kept) shapes.push_back({tokens, hidden});
    }
  }
  return shapes;
}

std::vector<std::byte> sum_of_two(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  const std::byte* operands[] = {a.data(), b.data()};
  std::vector<std::byte> output(a.size());
  collective::reduce({collective::DType::kBfloat16, collective::Op::kSum, 1}, operands, output.data(), nullptr,
                     a.size() / 2);
  return output;
}

}  // namespace tensorwire::test
