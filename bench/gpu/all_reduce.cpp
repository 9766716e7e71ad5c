// All-reduces between the GPUs of this host, bf16 sum, Tensorwire beside NCCL in one run: for each size a CUDA graph of
// dependent operations with a spacer kernel between them is replayed, the ways taking turns. The time of an operation
// is that of a replay, less that of a replay of the spacers alone, over the operations in it; the slowest rank's
// counts. Ranks are threads, one for each GPU unless --ranks says more.
//
// usage: gpu_allreduce [--ranks N] [--bytes 8192,65536] [--ways
// tensorwire,nccl,nccl-window,lines:16:512,slots:64:16384]
//                      [--turns N] [--nccl FILE] [--json FILE] [--early 0] [--journal 0] [--round BYTES] [--slot BYTES]
//                      [--lanes N]
//                      [--scratch gpu|host]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "lists.hpp"
#include "measure.hpp"
#include "start_line.hpp"

namespace tensorwire::bench {
namespace {

struct Arguments {
  int ranks = 0;  ///< 0: as many as there are GPUs
  std::vector<std::size_t> bytes{8U << 10, 64U << 10, 256U << 10, 1U << 20, 8U << 20, 64U << 20};
  std::vector<std::string> ways{"tensorwire", "nccl"};
  int turns = 10;
  std::string nccl;
  std::string json;
  cuda::CommunicatorOptions wishes;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--ranks") {
      arguments.ranks = std::stoi(value);
    } else if (name == "--bytes") {
      arguments.bytes = split_numbers(value);
    } else if (name == "--ways") {
      arguments.ways = split_list(value);
    } else if (name == "--turns") {
      arguments.turns = std::stoi(value);
    } else if (name == "--nccl") {
      arguments.nccl = value;
    } else if (name == "--early") {
      arguments.wishes.early_launch = value != "0";
    } else if (name == "--journal") {
      arguments.wishes.journal = value != "0";
    } else if (name == "--round") {
      arguments.wishes.round_bytes = static_cast<std::uint32_t>(std::stoul(value));
    } else if (name == "--scratch") {
      arguments.wishes.scratch = value == "host" ? cuda::Home::kHost : cuda::Home::kGpu;
    } else if (name == "--slot") {
      arguments.wishes.slot_bytes = static_cast<std::uint32_t>(std::stoul(value));
    } else if (name == "--lanes") {
      arguments.wishes.most_lanes = static_cast<std::uint32_t>(std::stoul(value));
    } else if (name == "--json") {
      arguments.json = value;
    } else {
      throw Error("read the arguments", name + " is unknown");
    }
  }
  return arguments;
}

/// What the rank threads share.
class Run {
 public:
  Run(Arguments arguments, int devices)
      : arguments_(std::move(arguments)),
        devices_(devices),
        line_(arguments_.ranks),
        given_(static_cast<std::size_t>(arguments_.ranks)),
        samples_(static_cast<std::size_t>(arguments_.ranks)) {}

  int go() {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < arguments_.ranks; ++rank) {
      threads.emplace_back([this, rank] {
        try {
          be(rank);
        } catch (const std::exception& error) {
          // The other ranks wait for this one: there is no way on.
          std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
          std::_Exit(1);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (!arguments_.json.empty()) write_json();
    return wrong_ ? 1 : 0;
  }

 private:
  std::vector<cuda::Bytes> exchange(int rank, std::span<const std::byte> mine) {
    given_[static_cast<std::size_t>(rank)].assign(mine.begin(), mine.end());
    line_.arrive_and_wait();
    std::vector<cuda::Bytes> all = given_;
    line_.arrive_and_wait();
    return all;
  }

  void be(int rank) {
    Place place{rank, arguments_.ranks, rank % devices_, {}};
    place.exchange = [this, rank](std::span<const std::byte> mine) { return exchange(rank, mine); };
    if (cudaSetDevice(place.device) != cudaSuccess) throw Error("use a GPU", "it cannot be used");
    const auto communicator = make_communicator(place, arguments_.wishes);
    for (const std::size_t bytes : arguments_.bytes) measure_size(place, communicator, bytes);
    line_.arrive_and_wait();
  }

  void measure_size(const Place& place, const std::shared_ptr<cuda::Communicator>& communicator, std::size_t bytes) {
    std::vector<std::unique_ptr<Way>> ways;
    std::vector<std::unique_ptr<Measured>> measured;
    const int operations = bytes >= 4U << 20 ? 10 : 40;
    for (const std::string& name : arguments_.ways) {
      if (name == "nccl" || name == "nccl-window") {
        ways.push_back(make_nccl_way(name == "nccl-window", place, arguments_.nccl));
      } else {
        ways.push_back(make_tensorwire_way(name, place, communicator));
      }
      line_.arrive_and_wait();
      measured.push_back(std::make_unique<Measured>(*ways.back(), place, bytes, operations));
      line_.arrive_and_wait();
    }
    std::vector<std::vector<float>> times(ways.size());
    for (int turn = 0; turn < arguments_.turns; ++turn) {
      for (std::size_t i = 0; i < ways.size(); ++i) {
        // Forwards and backwards, so that no way always follows the same one.
        const std::size_t chosen = turn % 2 == 0 ? i : ways.size() - 1 - i;
        take_turn(*measured[chosen], operations, turn == 0, times[chosen]);
      }
    }
    for (std::size_t i = 0; i < ways.size(); ++i) report(place, bytes, i, *ways[i], *measured[i], times[i]);
    line_.arrive_and_wait();
  }

  void take_turn(Measured& measured, int operations, bool warm_up, std::vector<float>& times) {
    constexpr int kReplays = 20;
    for (int i = 0; i < kReplays; ++i) {
      line_.arrive_and_wait();
      const float spacers = measured.replay_spacers();
      line_.arrive_and_wait();
      const float all = measured.replay();
      // The first replays of a turn find the GPU at rest.
      if (!warm_up && i >= 3) times.push_back((all - spacers) / static_cast<float>(operations));
    }
  }

  struct Result {
    std::size_t bytes;
    std::string way, used;
    float p50, p99, least;
    bool right;
  };

  void report(const Place& place, std::size_t bytes, std::size_t index, Way& way, const Measured& measured,
              const std::vector<float>& times) {
    const bool right = measured.right();
    {
      const std::lock_guard lock(mutex_);
      samples_[static_cast<std::size_t>(place.rank)] = times;
      if (!right) wrong_ = true;
    }
    line_.arrive_and_wait();
    if (place.rank == 0) {
      std::vector<float> slowest = samples_[0];
      for (const auto& of_rank : samples_) {
        for (std::size_t i = 0; i < slowest.size(); ++i) slowest[i] = std::max(slowest[i], of_rank[i]);
      }
      std::ranges::sort(slowest);
      const Result result{bytes,
                          arguments_.ways[index],
                          way.describe(),
                          slowest[slowest.size() / 2],
                          slowest[slowest.size() * 99 / 100],
                          slowest.front(),
                          !wrong_};
      results_.push_back(result);
      std::printf("%10zu  %-16s p50 %8.2f  p99 %8.2f  least %8.2f us  %s%s\n", bytes, result.way.c_str(), result.p50,
                  result.p99, result.least, result.used.c_str(), result.right ? "" : "  WRONG");
      std::fflush(stdout);
    }
    line_.arrive_and_wait();
  }

  void write_json() const {
    std::FILE* file = std::fopen(arguments_.json.c_str(), "w");
    if (file == nullptr) throw Error("write " + arguments_.json, "it cannot be opened");
    cudaDeviceProp properties{};
    int driver = 0;
    int runtime = 0;
    cudaGetDeviceProperties(&properties, 0);
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    std::fprintf(file, "{\"gpu\": \"%s\", \"gpus\": %d, \"ranks\": %d, \"cuda_driver\": %d, \"cuda_runtime\": %d,\n",
                 properties.name, devices_, arguments_.ranks, driver, runtime);
    std::fprintf(file,
                 " \"what\": \"all-reduce, bf16 sum; microseconds of one operation, slowest rank\",\n \"results\": [");
    for (const Result& result : results_) {
      std::fprintf(file,
                   "%s\n  {\"bytes\": %zu, \"way\": \"%s\", \"used\": \"%s\", \"p50_us\": %.3f, \"p99_us\": %.3f, "
                   "\"least_us\": %.3f, \"right\": %s}",
                   &result == results_.data() ? "" : ",", result.bytes, result.way.c_str(), result.used.c_str(),
                   result.p50, result.p99, result.least, result.right ? "true" : "false");
    }
    std::fprintf(file, "\n ]}\n");
    std::fclose(file);
  }

  Arguments arguments_;
  int devices_;
  StartLine line_;
  std::mutex mutex_;
  std::vector<cuda::Bytes> given_;
  std::vector<std::vector<float>> samples_;
  std::vector<Result> results_;
  bool wrong_ = false;
};

int run(int argc, char** argv) {
  Arguments arguments = parse(argc, argv);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "gpu_allreduce: there is no GPU here\n");
    return 77;
  }
  if (arguments.ranks == 0) arguments.ranks = std::max(devices, 2);
  return Run(std::move(arguments), devices).go();
}

}  // namespace
}  // namespace tensorwire::bench

int main(int argc, char** argv) {
  // Ranks that share a GPU need hardware queues of their own.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);  // a kernel that is loaded late may wait for an idle GPU
  try {
    return tensorwire::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_allreduce: %s\n", error.what());
    return 2;
  }
}
