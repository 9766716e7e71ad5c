#include "comm/observe/operation_statistics.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <type_traits>

#include "base/error.hpp"

namespace tensorwire::comm {

namespace {

/// Their numbers have four bits in a signature.
constexpr std::size_t kCollectives = 16;

}  // namespace

std::size_t size_class(std::uint64_t bytes) noexcept {
  if (bytes <= kSmallestSizeClass) return 0;
  constexpr auto kFirst = static_cast<std::size_t>(std::bit_width(kSmallestSizeClass - 1));
  return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(bytes - 1)) - kFirst, kSizeClasses - 1);
}

OperationStatistics::OperationStatistics() {
  static_assert(std::is_trivially_destructible_v<Class>);
  constexpr std::size_t kCount = kCollectives * kSizeClasses;
  void* memory = mmap(nullptr, kCount * sizeof(Class), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw system_error("make room for the statistics of a communicator", errno);
  // Zeroed pages are what the constructors would write; running them would touch every page.
  classes_ = {static_cast<Class*>(memory), kCount};
}

OperationStatistics::~OperationStatistics() { munmap(classes_.data(), classes_.size_bytes()); }

void OperationStatistics::add(collective::Collective collective, std::uint64_t bytes, Ps duration) noexcept {
  const std::size_t row = static_cast<std::size_t>(collective) % kCollectives;
  Class& entry = classes_[row * kSizeClasses + size_class(bytes)];
  entry.operations.add(1);
  entry.bytes.add(bytes);
  entry.durations.add(duration);
}

std::vector<SizeStats> OperationStatistics::read() const {
  std::vector<SizeStats> all;
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    const Class& entry = classes_[i];
    if (entry.operations.get() == 0) continue;
    SizeStats stats;
    stats.collective = static_cast<collective::Collective>(i / kSizeClasses);
    stats.up_to_bytes = kSmallestSizeClass << (i % kSizeClasses);
    stats.operations = entry.operations.get();
    stats.bytes = entry.bytes.get();
    stats.p50 = entry.durations.percentile(0.50);
    stats.p99 = entry.durations.percentile(0.99);
    stats.max = entry.durations.max();
    stats.total = entry.durations.total();
    all.push_back(stats);
  }
  return all;
}

}  // namespace tensorwire::comm
