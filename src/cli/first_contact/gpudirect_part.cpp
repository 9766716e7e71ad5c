#include "cli/first_contact/gpudirect_part.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "cli/first_contact/gpu_memory.hpp"
#include "cli/first_contact/loopback.hpp"
#include "verbs/gpudirect_mr.hpp"

namespace tensorwire::cli {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kTriedBytes = std::size_t{16} << 20;
constexpr std::uint16_t kBefore = 0x1111;
constexpr std::uint16_t kAfter = 0x2b67;
constexpr std::uint32_t kTimedRounds = 32;

constexpr verbs::MemoryAccess kRemoteWrites{.local_write = true, .remote_write = true};

/// Whether what the HCA wrote is what the GPU has.
Json try_writes(const std::shared_ptr<verbs::ProtectionDomain>& domain, const GpuBuffer& buffer,
                const verbs::MemoryRegion& target) {
  std::vector<std::uint16_t> pattern(buffer.bytes() / sizeof(std::uint16_t));
  for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<std::uint16_t>(kAfter * (i + 1));
  const verbs::MemorySpan span{pattern.data(), buffer.bytes()};
  const verbs::MemoryRegion source = verbs::register_gpu_memory_with_hca(domain, span, {});
  buffer.fill(kBefore);
  static_cast<void>(write_to_itself(domain, source, target, 1));
  std::vector<std::uint16_t> found(pattern.size());
  buffer.copy_to(std::as_writable_bytes(std::span{found}));
  const bool right = found == pattern;
  if (!right) return {{"right", false}};
  return {{"right", true}, {"gb_s", write_to_itself(domain, source, target, kTimedRounds)}};
}

Json examine_pair(const Gpu& gpu, int ordinal, const Rail& rail) {
  Json line{{"gpu", ordinal}, {"model", gpu.name()}, {"device", rail.end.device}};
  if (rail.context == nullptr) {
    line["why"] = rail.end.problem;
    return line;
  }
  const auto domain = verbs::ProtectionDomain::create(rail.context);
  const GpuBuffer buffer{gpu, kTriedBytes};
  verbs::MemoryRegion region;
  try {
    region = verbs::register_gpu_memory_with_hca(domain, {buffer.address(), buffer.bytes()}, kRemoteWrites);
  } catch (const Error& error) {
    line["path"] = "none";
    line["why"] = error.what();
    return line;
  }
  line["path"] = verbs::name(region.path());
  // Said before it is done: should the write kill this process, the line is there.
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
  try {
    line["write"] = try_writes(domain, buffer, region);
  } catch (const Error& error) {
    line["write"] = {{"right", false}, {"why", error.what()}};
  }
  return line;
}

}  // namespace

int print_gpudirect(const RailWish& wish) {
  std::string why;
  const int gpus = Gpu::count(why);
  if (gpus == 0) {
    fmt::print("{}\n", Json{{"no_gpu", why}}.dump());
    return 0;
  }
  const std::vector<Rail> rails = open_rails(wish);
  for (int ordinal = 0; ordinal < gpus; ++ordinal) {
    const Gpu gpu{ordinal};
    for (const Rail& rail : rails) {
      fmt::print("{}\n", examine_pair(gpu, ordinal, rail).dump());
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace tensorwire::cli
