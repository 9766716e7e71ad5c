// The work of a rank: a seeded sequence of collectives, each with inputs of its own and every element of every result
// checked. Values are small integers, which are exact in every type and in any order of summation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/canary_memory.hpp"
#include "tensorwire/tensorwire.h"

namespace tensorwire::chaos {

/// kMessages: each rank sends to the next one and receives from the one before. kGroup: the same and an all-reduce, in
/// one group.
enum class Kind : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kBarrier,
  kMessages,
  kGroup
};

struct Operation {
  Kind kind = Kind::kAllReduce;
  std::size_t count = 0;  ///< as the call of the C API counts
  twDataType_t dtype = twFloat32;
  twRedOp_t op = twSum;
  int root = 0;
  bool in_place = false;
};

/// Operation `index` of a sequence that `ranks` ranks run.
[[nodiscard]] Operation operation(std::uint64_t seed, std::uint64_t index, int ranks);
[[nodiscard]] std::string to_string(const Operation& operation);

class Work {
 public:
  Work();

  /// Which communicator the next operations are of; they begin anew with number 0.
  void begin(twComm_t comm, int ranks, int rank, std::uint64_t seed) noexcept;
  /// The next operation. @throws Error: a wrong result, a dead canary. Other results than twSuccess are returned.
  twResult_t next();
  /// Another call than the others make; the result is not checked.
  twResult_t disagree();
  /// @throws Error when a canary is dead.
  void check_canaries() const;

  [[nodiscard]] std::uint64_t done() const noexcept { return done_; }
  [[nodiscard]] void* segment() const noexcept { return memory_.segment(); }
  [[nodiscard]] std::size_t segment_bytes() const noexcept { return memory_.segment_bytes(); }

 private:
  /// What lies where before and after an operation: `blocks` of `count` elements, of one rank each.
  struct Layout {
    std::size_t in_blocks = 0, out_blocks = 0;
  };
  [[nodiscard]] Layout layout(const Operation& op) const noexcept;
  [[nodiscard]] std::byte* output_of(const Operation& op) const noexcept;
  [[nodiscard]] std::byte* input_of(const Operation& op) const noexcept;
  void fill(const Operation& op) const noexcept;
  twResult_t call(const Operation& op) const noexcept;
  twResult_t call_group(const Operation& op) const noexcept;
  [[nodiscard]] int rank_before() const noexcept { return (rank_ + ranks_ - 1) % ranks_; }
  void check(const Operation& op) const;
  [[nodiscard]] std::uint32_t expected(const Operation& op, std::size_t block, std::size_t index) const noexcept;

  comm::CanaryMemory memory_;
  twComm_t comm_ = nullptr;
  int ranks_ = 0;
  int rank_ = 0;
  std::uint64_t seed_ = 0;
  std::uint64_t done_ = 0;
};

}  // namespace tensorwire::chaos
