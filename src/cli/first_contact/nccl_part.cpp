#include "cli/first_contact/nccl_part.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "bootstrap/group.hpp"
#include "cli/bench/statistics.hpp"
#include "cli/first_contact/gpu_memory.hpp"

namespace tensorwire::cli {
namespace {

using Json = nlohmann::json;

constexpr const char* kNcclLibrary = "libnccl.so.2";
constexpr std::size_t kLeastSweep = 1 << 10;
constexpr std::size_t kSweepFactor = 4;
constexpr int kNcclWarmUp = 5;
constexpr int kNcclTimed = 20;
constexpr int kNcclHalf = 6;  // ncclFloat16
constexpr int kNcclSum = 0;
constexpr std::uint16_t kHalfOne = 0x3c00;

struct NcclId {
  std::array<char, 128> bytes;
};

/// As nccl.h declares them.
struct NcclCalls {
  int (*version)(int*) = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*unique_id)(NcclId*) = nullptr;
  int (*init_rank)(void**, int, NcclId, int) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int, int, void*, void*) = nullptr;
  int (*destroy)(void*) = nullptr;
};

/// Empty: they are there.
std::string find_nccl(NcclCalls& calls) {
  void* const library = dlopen(kNcclLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fmt::format("{} is not where the loader looks", kNcclLibrary);
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  const bool whole = find("ncclGetVersion", calls.version) && find("ncclGetErrorString", calls.error_string) &&
                     find("ncclGetUniqueId", calls.unique_id) && find("ncclCommInitRank", calls.init_rank) &&
                     find("ncclAllReduce", calls.all_reduce) && find("ncclCommDestroy", calls.destroy);
  return whole ? "" : fmt::format("{} lacks functions that NCCL has", kNcclLibrary);
}

/// What keeps any rank from taking part, by rank; empty: nothing.
std::string reasons(bootstrap::Group& group, const std::string& mine) {
  std::string all;
  const auto told = group.all_gather(std::as_bytes(std::span{mine}));
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    if (told[rank].empty()) continue;
    all += fmt::format("{}{}: {}", all.empty() ? "" : "; ", group.host(static_cast<int>(rank)),
                       std::string{reinterpret_cast<const char*>(told[rank].data()), told[rank].size()});
  }
  return all;
}

/// The binary16 number of a small count.
float from_half(std::uint16_t half) {
  const int exponent = (half >> 10 & 0x1f) - 15;
  const float fraction = 1 + static_cast<float>(half & 0x3ff) / 1024;
  return exponent >= 0 ? fraction * static_cast<float>(1U << static_cast<unsigned>(exponent)) : 0;
}

class NcclSweep {
 public:
  NcclSweep(bootstrap::Group& group, const NcclCalls& nccl, const Gpu& gpu, std::size_t most)
      : group_(group), nccl_(nccl), stream_(gpu), most_(most), buffer_(gpu, most) {
    NcclId id{};
    if (group.rank() == 0) check(nccl_.unique_id(&id), "make a unique id");
    const auto bytes = group.broadcast(std::as_bytes(std::span{id.bytes}));
    std::memcpy(id.bytes.data(), bytes.data(), std::min(bytes.size(), id.bytes.size()));
    check(nccl_.init_rank(&comm_, group.world_size(), id, group.rank()), "make a communicator");
  }
  ~NcclSweep() { nccl_.destroy(comm_); }
  NcclSweep(const NcclSweep&) = delete;
  NcclSweep& operator=(const NcclSweep&) = delete;

  Json run() {
    Json rows = Json::array();
    for (std::size_t bytes = kLeastSweep; bytes <= most_; bytes *= kSweepFactor) rows.push_back(measure(bytes));
    int version = 0;
    nccl_.version(&version);
    return {{"version", version}, {"dtype", "fp16"}, {"ranks", group_.world_size()}, {"results", std::move(rows)}};
  }

 private:
  Json measure(std::size_t bytes) {
    std::vector<Ps> samples;
    for (int i = -kNcclWarmUp; i < kNcclTimed; ++i) {
      const Ps started = monotonic_now();
      reduce(bytes);
      if (i >= 0) samples.push_back(monotonic_now() - started);
    }
    buffer_.fill(kHalfOne);
    reduce(bytes);
    std::vector<std::uint16_t> result(bytes / sizeof(std::uint16_t));
    buffer_.copy_to(std::as_writable_bytes(std::span{result}));
    const auto wrong = std::ranges::count_if(
        result, [&](std::uint16_t value) { return from_half(value) != static_cast<float>(group_.world_size()); });
    const double p50 = microseconds(summarise(std::move(samples)).p50);
    return {
        {"bytes", bytes}, {"p50_us", p50}, {"algbw_gb_s", static_cast<double>(bytes) / p50 / 1000}, {"wrong", wrong}};
  }

  void reduce(std::size_t bytes) {
    check(nccl_.all_reduce(buffer_.address(), buffer_.address(), bytes / sizeof(std::uint16_t), kNcclHalf, kNcclSum,
                           comm_, stream_.raw()),
          "all-reduce");
    stream_.wait();
  }

  void check(int result, const char* what) const {
    if (result != 0) throw Error{fmt::format("NCCL: {}", what), nccl_.error_string(result)};
  }

  bootstrap::Group& group_;
  const NcclCalls& nccl_;
  GpuStream stream_;
  std::size_t most_;
  GpuBuffer buffer_;
  void* comm_ = nullptr;
};

}  // namespace

int print_nccl_sweep(std::size_t max_bytes) {
  const auto options = bootstrap::detect_options(bootstrap::process_environment());
  NcclCalls nccl;
  std::string why;
  const int gpus = Gpu::count(why);
  if (gpus > 0) why = find_nccl(nccl);
  if (why.empty() && options.local_rank >= gpus)
    why = fmt::format("{} ranks for {} GPUs", options.local_world_size, gpus);
  const auto group = bootstrap::Group::join(options);
  const std::string all = reasons(*group, why);
  Json report{{"why", all}};
  if (all.empty()) {
    try {
      const Gpu gpu{options.local_rank};
      report = NcclSweep{*group, nccl, gpu, max_bytes}.run();
    } catch (const Error& error) {
      group->abort(error.what());
      throw;
    }
  }
  if (options.rank == 0) fmt::print("{}\n", report.dump());
  group->leave();
  return 0;
}

}  // namespace tensorwire::cli
