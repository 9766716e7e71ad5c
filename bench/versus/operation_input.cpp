#include "operation_input.hpp"

#include <algorithm>
#include <array>

// Both run over every element of every rank before and after each timed operation: they are compiled twice, and the
// loader takes what the processor can do.
#if defined(__x86_64__)
#define VERSUS_FAST __attribute__((target_clones("avx2", "default")))
#else
#define VERSUS_FAST
#endif

namespace tensorwire::versus {

namespace {

constexpr std::size_t kBlock = 1024;

/// splitmix64's finalizer.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

std::uint64_t key_of(std::uint32_t rank, std::uint64_t operation) {
  return mix(mix(operation + 0x9e3779b97f4a7c15ULL) + rank);
}

/// -32768 to 32767.
inline std::int32_t element(std::uint64_t key, std::uint32_t index) {
  std::uint32_t x = (index + static_cast<std::uint32_t>(key)) * 0x9e3779b1U;
  x = ((x ^ (x >> 15)) + static_cast<std::uint32_t>(key >> 32)) * 0x85ebca6bU;
  return static_cast<std::int32_t>(x) >> 16;
}

VERSUS_FAST void fill_with(std::uint64_t key, float* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(element(key, static_cast<std::uint32_t>(i)));
}

VERSUS_FAST void add_block(std::uint64_t key, std::uint32_t first, std::int32_t* sums, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sums[i] += element(key, first + static_cast<std::uint32_t>(i));
}

VERSUS_FAST std::uint64_t differences(const std::int32_t* sums, const float* result, std::size_t count) {
  std::uint32_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) wrong += result[i] != static_cast<float>(sums[i]) ? 1U : 0U;
  return wrong;
}

}  // namespace

void fill(std::uint32_t rank, std::uint64_t operation, std::span<float> input) {
  fill_with(key_of(rank, operation), input.data(), input.size());
}

std::uint64_t count_wrong(std::uint32_t ranks, std::uint64_t operation, std::span<const float> result) {
  std::uint64_t wrong = 0;
  for (std::size_t at = 0; at < result.size(); at += kBlock) {
    const std::size_t count = std::min(kBlock, result.size() - at);
    std::array<std::int32_t, kBlock> sums{};
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      add_block(key_of(rank, operation), static_cast<std::uint32_t>(at), sums.data(), count);
    }
    wrong += differences(sums.data(), result.data() + at, count);
  }
  return wrong;
}

}  // namespace tensorwire::versus
