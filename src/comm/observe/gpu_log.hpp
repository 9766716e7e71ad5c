// The last operations that ran on a rank's GPU, replays of graphs among them, as its journal tells of them, on the
// host's clock; and how they stand in traces and flight records.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "cuda/communicator.hpp"

namespace tensorwire::comm {

struct GpuOperation {
  cuda::JournalEntry entry;
  Ps begun = 0;
  Ps ended = 0;  ///< 0: under way, or never over

  /// "bytes":8192,"dtype":"bf16","waited_us":{"1":12.300}: inside of a JSON object
  [[nodiscard]] std::string json_fields() const;
};

class GpuLog {
 public:
  /// @param operations that are kept
  explicit GpuLog(std::size_t operations) : kept_(operations) {}

  /// What is new in a journal. One without a clock cannot be placed, and is left for later.
  void add(const cuda::Communicator::Journal& journal);

  /// From old to new.
  [[nodiscard]] const std::deque<GpuOperation>& operations() const noexcept { return operations_; }
  /// Operations that nobody read before they made room for others, here or on the GPU.
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_; }
  /// How wrong the times of the last ones may be.
  [[nodiscard]] Ps clock_error() const noexcept { return clock_error_; }

 private:
  std::size_t kept_;
  std::deque<GpuOperation> operations_;
  std::uint64_t dropped_ = 0;
  Ps clock_error_ = 0;
};

/// The last `most` as lines of a flight record.
[[nodiscard]] std::string flight_lines(const GpuLog& log, std::size_t most, Ps now);

}  // namespace tensorwire::comm
