// All-reduces between GPUs of different hosts, bf16 sum: this program is one rank, started once on each host (or in
// each network namespace of one host, as scripts/gpu_hosts.sh does). Graphs of dependent operations are replayed as in
// all_reduce.cpp, through the C API and, where asked for, through NCCL in the same run, the ways taking turns.
//
// usage: gpu_between_hosts --rank R --ranks N --device D --address A --port P [--bytes 8192,65536]
//                          [--ways tensorwire,nccl] [--turns N] [--nccl FILE] [--json FILE]
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "base/error.hpp"
#include "bootstrap/group.hpp"
#include "gpu_blocks.hpp"
#include "lists.hpp"
#include "measure.hpp"
#include "tensorwire/tensorwire.h"

namespace tensorwire::bench {
namespace {

/// twAllReduce, by whichever path the ranks' GPUs have.
class ApiWay : public Way {
 public:
  explicit ApiWay(const Place& place) {
    twUniqueId id{};
    if (place.rank == 0) check(twGetUniqueId(&id), nullptr, "twGetUniqueId");
    const auto all = place.exchange(std::as_bytes(std::span(&id, 1)));
    std::memcpy(&id, all[0].data(), sizeof id);
    check(twCommInitRank(&comm_, place.ranks, id, place.rank), nullptr, "twCommInitRank");
    check(twCommInitGpu(comm_, place.device), comm_, "twCommInitGpu");
  }
  ~ApiWay() override { twCommDestroy(comm_); }

  bool all_reduce(const void* in, void* out, std::size_t count, cudaStream_t stream) override {
    return twAllReduce(in, out, count, twBfloat16, twSum, comm_, stream) == twSuccess;
  }
  std::string describe() const override {
    const char* path = "";
    twCommGpuPath(comm_, &path);
    twResult_t state = twSuccess;
    twCommGetAsyncError(comm_, &state);
    return state == twSuccess ? std::string("path ") + path : twGetLastError(comm_);
  }
  void* allocate(std::size_t bytes) override { return memory_.take(bytes); }

 private:
  static void check(twResult_t result, twComm_t comm, const char* what) {
    if (result != twSuccess) throw Error(what, twGetLastError(comm));
  }

  twComm_t comm_ = nullptr;
  GpuBlocks memory_;
};

struct Arguments {
  int rank = -1;
  int ranks = 2;
  int device = 0;
  int port = 29500;
  std::string address = "127.0.0.1";
  std::vector<std::size_t> bytes{8U << 10, 64U << 10, 256U << 10, 1U << 20, 8U << 20};
  std::vector<std::string> ways{"tensorwire"};
  int turns = 6;
  std::string nccl, json;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  std::map<std::string, int*> numbers{{"--rank", &arguments.rank},
                                      {"--ranks", &arguments.ranks},
                                      {"--device", &arguments.device},
                                      {"--port", &arguments.port},
                                      {"--turns", &arguments.turns}};
  std::map<std::string, std::string*> texts{
      {"--address", &arguments.address}, {"--nccl", &arguments.nccl}, {"--json", &arguments.json}};
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw Error("read the arguments", name + " needs a value");
    const std::string value = argv[i + 1];
    if (numbers.contains(name)) {
      *numbers[name] = std::stoi(value);
    } else if (texts.contains(name)) {
      *texts[name] = value;
    } else if (name == "--bytes") {
      arguments.bytes = split_numbers(value);
    } else if (name == "--ways") {
      arguments.ways = split_list(value);
    } else {
      throw Error("read the arguments", name + " is unknown");
    }
  }
  if (arguments.rank < 0 || arguments.rank >= arguments.ranks) throw Error("read the arguments", "--rank is missing");
  return arguments;
}

class HostsRun {
 public:
  explicit HostsRun(Arguments arguments) : arguments_(std::move(arguments)) {
    bootstrap::GroupOptions meeting;
    meeting.rank = arguments_.rank;
    meeting.world_size = arguments_.ranks;
    meeting.master_address = arguments_.address;
    meeting.master_port = static_cast<std::uint16_t>(arguments_.port);
    group_ = bootstrap::Group::join(meeting);
    place_ = {arguments_.rank, arguments_.ranks, arguments_.device, {}};
    place_.exchange = [this](std::span<const std::byte> mine) { return group_->all_gather(mine); };
  }

  int go() {
    if (cudaSetDevice(place_.device) != cudaSuccess) throw Error("use a GPU", "it cannot be used");
    std::vector<std::unique_ptr<Way>> ways;
    for (const std::string& name : arguments_.ways) {
      if (name == "tensorwire") {
        ways.push_back(std::make_unique<ApiWay>(place_));
      } else if (name == "nccl") {
        ways.push_back(make_nccl_way(false, place_, arguments_.nccl));
      } else {
        throw Error("measure " + name, "there is no such way", "Give tensorwire or nccl");
      }
    }
    for (const std::size_t bytes : arguments_.bytes) measure_size(ways, bytes);
    if (place_.rank == 0 && !arguments_.json.empty()) write_json();
    group_->barrier();
    return wrong_ ? 1 : 0;
  }

 private:
  void measure_size(std::vector<std::unique_ptr<Way>>& ways, std::size_t bytes) {
    const int operations = bytes >= 1U << 20 ? 10 : 40;
    std::vector<std::unique_ptr<Measured>> measured;
    for (const auto& way : ways) {
      group_->barrier();
      measured.push_back(std::make_unique<Measured>(*way, place_, bytes, operations));
    }
    std::vector<std::vector<float>> times(ways.size());
    for (int turn = 0; turn < arguments_.turns; ++turn) {
      for (std::size_t i = 0; i < ways.size(); ++i) {
        const std::size_t chosen = turn % 2 == 0 ? i : ways.size() - 1 - i;
        for (int replay = 0; replay < 10; ++replay) {
          group_->barrier();
          const float spacers = measured[chosen]->replay_spacers();
          group_->barrier();
          const float all = measured[chosen]->replay();
          if (turn > 0 && replay >= 2) times[chosen].push_back((all - spacers) / static_cast<float>(operations));
        }
      }
    }
    for (std::size_t i = 0; i < ways.size(); ++i) report(bytes, arguments_.ways[i], *ways[i], *measured[i], times[i]);
    group_->barrier();
  }

  /// The slowest rank's times count.
  void report(std::size_t bytes, const std::string& name, const Way& way, const Measured& measured,
              std::vector<float> times) {
    times.push_back(measured.right() ? 1.0F : 0.0F);
    const auto all = group_->all_gather(std::as_bytes(std::span(times)));
    bool right = true;
    for (const auto& of_rank : all) {
      std::vector<float> theirs(of_rank.size() / sizeof(float));
      std::memcpy(theirs.data(), of_rank.data(), of_rank.size());
      right = right && theirs.back() != 0;
      for (std::size_t i = 0; i + 1 < theirs.size(); ++i) times[i] = std::max(times[i], theirs[i]);
    }
    times.pop_back();
    wrong_ = wrong_ || !right;
    if (place_.rank != 0 || times.empty()) return;
    std::ranges::sort(times);
    const float p50 = times[times.size() / 2], p99 = times[times.size() * 99 / 100];
    std::printf("%10zu  %-12s p50 %9.2f  p99 %9.2f  least %9.2f us  %s%s\n", bytes, name.c_str(), p50, p99, times[0],
                way.describe().c_str(), right ? "" : "  WRONG");
    std::fflush(stdout);
    rows_.push_back(fmt::format(
        R"({{"bytes": {}, "way": "{}", "used": "{}", "p50_us": {:.3f}, "p99_us": {:.3f}, "least_us": {:.3f}, "right": {}}})",
        bytes, name, way.describe(), p50, p99, times[0], right));
  }

  void write_json() const {
    std::FILE* file = std::fopen(arguments_.json.c_str(), "w");
    if (file == nullptr) throw Error("write " + arguments_.json, "it cannot be opened");
    fmt::print(file,
               "{{\"what\": \"all-reduce between hosts, bf16 sum; microseconds of one operation, slowest rank\",\n");
    fmt::print(file, " \"ranks\": {},\n \"results\": [\n  {}\n ]}}\n", place_.ranks, fmt::join(rows_, ",\n  "));
    std::fclose(file);
  }

  Arguments arguments_;
  std::unique_ptr<bootstrap::Group> group_;
  Place place_;
  std::vector<std::string> rows_;
  bool wrong_ = false;
};

}  // namespace
}  // namespace tensorwire::bench

int main(int argc, char** argv) {
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);  // a kernel that is loaded late may wait for an idle GPU
  try {
    return tensorwire::bench::HostsRun(tensorwire::bench::parse(argc, argv)).go();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_between_hosts: %s\n", error.what());
    return 2;
  }
}
