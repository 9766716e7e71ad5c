// How many operations of each collective and size a communicator has done, and how long they took. One thread counts,
// any thread reads; nothing allocates after the constructor. Classes that never occur cost address space only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/time.hpp"
#include "comm/observe/latency_histogram.hpp"
#include "comm/statistics.hpp"

namespace tensorwire::comm {

class OperationStatistics {
 public:
  /// @throws Error when there is no memory.
  OperationStatistics();
  ~OperationStatistics();
  OperationStatistics(const OperationStatistics&) = delete;
  OperationStatistics& operator=(const OperationStatistics&) = delete;

  void add(collective::Collective collective, std::uint64_t bytes, Ps duration) noexcept;

  /// One entry for each class with operations in it, by collective, then size.
  [[nodiscard]] std::vector<SizeStats> read() const;

 private:
  struct Class {
    Tally operations, bytes;
    LatencyHistogram durations;
  };
  std::span<Class> classes_;  ///< [collective * kSizeClasses + size class], in pages that the system fills when touched
};

}  // namespace tensorwire::comm
