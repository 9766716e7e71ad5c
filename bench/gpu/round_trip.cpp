// What a word from the GPU to the host and back takes: from a kernel that spins, through the relay's doorbell and
// release word with a thread behind them that carries nothing, and with a stream that waits instead of a kernel.
// Medians and the 99th percentile over turns; the ways take turns. It is what no operation between hosts is below
// (docs/gpu.md).
//
// usage: gpu_round_trip [TURNS]
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "cuda/driver.cuh"
#include "cuda/pinned_memory.hpp"
#include "cuda/relay.hpp"
#include "ping.hpp"

namespace tensorwire::bench {
namespace {

constexpr std::uint64_t kRounds = 200;  // of a turn
constexpr Ps kBound = 10 * kSecond;

struct Times {
  std::vector<double> all;  // us
  [[nodiscard]] double at(double quantile) {
    std::ranges::sort(all);
    return all[static_cast<std::size_t>(quantile * static_cast<double>(all.size() - 1))];
  }
};

double since_us(Ps began) { return static_cast<double>(monotonic_now() - began) / static_cast<double>(kMicrosecond); }

/// Spins until the word has the value. @throws Error after ten seconds
void await(const std::uint64_t& word, std::uint64_t value) {
  const Ps deadline = monotonic_now() + kBound;
  while (__atomic_load_n(&word, __ATOMIC_ACQUIRE) != value) {
    if (monotonic_now() > deadline) throw Error("wait for the GPU", "it did not answer within 10 s");
  }
}

/// Answers a GPU that says 1, 2, 3 and waits for each to come back, and times all but the first.
void answer_all(Table& table, Times& times) {
  await(table.to_host, 1);
  for (std::uint64_t round = 1; round < kRounds; ++round) {
    const Ps began = monotonic_now();
    __atomic_store_n(&table.to_gpu, round, __ATOMIC_RELEASE);
    await(table.to_host, round + 1);
    times.all.push_back(since_us(began));
  }
  __atomic_store_n(&table.to_gpu, kRounds, __ATOMIC_RELEASE);
}

/// The host's view of a spinning kernel.
class Spinning {
 public:
  Spinning() : memory_(sizeof(Table)), table_(*new (memory_.host()) Table{}) {}

  void turn(cuda::Stream stream, Times& times) {
    table_.to_gpu = table_.to_host = 0;
    cuda::check(static_cast<cudaError_t>(launch_ping(reinterpret_cast<Table*>(memory_.on_gpu()), kRounds, stream)),
                "launch a kernel");
    answer_all(table_, times);
    cuda::check(cudaStreamSynchronize(stream), "wait for a kernel");
  }

 private:
  cuda::PinnedMemory memory_;
  Table& table_;
};

/// A relay and a thread that finishes each round at once; by the GPU's clock.
class Relaying {
 public:
  explicit Relaying(int device)
      : relay_({.rank = 0, .ranks = 2, .device = device, .operation_bound = kBound}), server_([this] { serve(); }) {}
  ~Relaying() {
    stopping_ = true;
    server_.join();
  }
  Relaying(const Relaying&) = delete;
  Relaying& operator=(const Relaying&) = delete;

  void turn(cuda::Stream stream, Times& times) {
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      if (relay_.barrier(stream) != cuda::Status::kOk) throw Error("launch a kernel", "it was refused");
      cuda::check(cudaStreamSynchronize(stream), "wait for a kernel");
      const cuda::RelayTimes gpu = relay_.times(0, ++number_);
      times.all.push_back(static_cast<double>(gpu.released_ns - gpu.rung_ns) / 1000);
    }
  }

 private:
  void serve() {
    while (!stopping_.load(std::memory_order_relaxed)) {
      if (const auto round = relay_.next(0)) relay_.finish(0, *round);
    }
  }

  cuda::Relay relay_;
  std::uint64_t number_ = 0;
  std::atomic<bool> stopping_ = false;
  std::thread server_;
};

/// A stream that writes a word and waits for the next.
class Waiting {
 public:
  Waiting() : memory_(sizeof(Table)), table_(*new (memory_.host()) Table{}) {
    look_up("cuStreamWriteValue64", write_);
    look_up("cuStreamWaitValue64", wait_);
  }

  void turn(cuda::Stream stream, Times& times) {
    table_.to_gpu = table_.to_host = 0;
    const auto at = reinterpret_cast<CUdeviceptr>(memory_.on_gpu());
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      cuda::check(write_(stream, at + offsetof(Table, to_host), round, CU_STREAM_WRITE_VALUE_DEFAULT), "write a word");
      cuda::check(wait_(stream, at + offsetof(Table, to_gpu), round, CU_STREAM_WAIT_VALUE_EQ), "wait for a word");
    }
    answer_all(table_, times);
    cuda::check(cudaStreamSynchronize(stream), "wait for a stream");
  }

 private:
  template <class Function>
  static void look_up(const char* name, Function& function) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    cuda::check(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result), name);
    if (found == nullptr) throw Error(std::string("look up ") + name, "it is not in the driver");
    function = reinterpret_cast<Function>(found);
  }

  cuda::PinnedMemory memory_;
  Table& table_;
  decltype(&cuStreamWriteValue64) write_ = nullptr;
  decltype(&cuStreamWaitValue64) wait_ = nullptr;
};

void run(int turns) {
  cuda::check(cudaSetDevice(0), "use a GPU");
  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
  Spinning spinning;
  Relaying relaying(0);
  Waiting waiting;
  struct Way {
    const char* name;
    std::function<void(Times&)> turn;
    Times times;
  };
  Way ways[] = {{"spinning kernel", [&](Times& times) { spinning.turn(stream, times); }, {}},
                {"relay, nothing carried", [&](Times& times) { relaying.turn(stream, times); }, {}},
                {"stream waits", [&](Times& times) { waiting.turn(stream, times); }, {}}};
  for (Way& way : ways) way.turn(way.times);
  for (Way& way : ways) way.times.all.clear();  // the first turn loads kernels
  for (int turn = 0; turn < turns; ++turn) {
    for (Way& way : ways) way.turn(way.times);
  }
  for (Way& way : ways) {
    fmt::print("{:<24} p50 {:6.2f} us  p99 {:6.2f} us  of {}\n", way.name, way.times.at(0.5), way.times.at(0.99),
               way.times.all.size());
  }
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace tensorwire::bench

int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 10;
  if (turns < 1 || argc > 2) {
    fmt::print(stderr, "usage: gpu_round_trip [TURNS], at least one\n");
    return 2;
  }
  try {
    tensorwire::bench::run(turns);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_round_trip: {}\n", error.what());
    return 1;
  }
  return 0;
}
