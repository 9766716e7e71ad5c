// The work of one direction of a connection, chosen beforehand: each operation has its own bytes at the source and its
// own place at the target, so that whatever happens, every byte of both memories has one right value.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "transport/types.hpp"

namespace tensorwire::transport::faults {

/// What is wrong with an operation or with the receive that it meets.
enum class Defect : std::uint8_t {
  kNone,
  // The key or the range that a WRITE, READ or atomic names.
  kRemoteUnknownKey,
  kRemoteOtherDomain,
  kRemoteNoRight,
  kRemotePastEnd,
  kRemoteBeforeStart,
  kRemoteWraps,
  kRemoteDeregistered,
  // The scatter/gather list of a send request: what it reads, or where a READ or atomic puts what it fetched.
  kSourceUnknownKey,
  kSourceOtherDomain,
  kSourcePastEnd,
  kSourceDeregistered,
  // The receive that a SEND meets.
  kReceiveShort,
  kReceiveUnknownKey,
  kReceiveNoRight,  ///< also: of the list of a READ or atomic
  kReceiveOtherDomain,
  kReceivePastEnd,
  kCount
};

struct Operation {
  WrOpcode opcode = WrOpcode::kWrite;
  std::uint32_t length = 0;
  std::uint64_t source = 0;  ///< offset in the zone that the bytes come from (atomics: of the word)
  std::uint64_t target = 0;  ///< offset in the zone that they go to
  std::uint32_t room = 0;    ///< bytes at the target that belong to this operation: at least its length
  std::uint32_t immediate = 0;
  bool signaled = true;
  bool solicited = false;
  bool inline_data = false;
  bool fence = false;
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;
  Defect defect = Defect::kNone;

  [[nodiscard]] bool is_send() const noexcept { return opcode == WrOpcode::kSend || opcode == WrOpcode::kSendImm; }
  [[nodiscard]] bool has_immediate() const noexcept {
    return opcode == WrOpcode::kWriteImm || opcode == WrOpcode::kSendImm;
  }
  [[nodiscard]] bool consumes_receive() const noexcept { return is_send() || opcode == WrOpcode::kWriteImm; }
  [[nodiscard]] bool fetches() const noexcept { return is_fetch(opcode); }
};

/// Of a message: mostly a few packets, with a liking for the edges.
[[nodiscard]] std::uint32_t choose_length(Random& random, std::uint32_t mtu);

/// Words that the atomics of a direction share.
inline constexpr std::uint32_t kWords = 4;

struct Operations {
  std::vector<Operation> all;
  std::uint64_t source_bytes = 0;
  std::uint64_t target_bytes = 0;
  std::uint64_t landing_bytes = 0;  ///< where READs and atomics put what they fetched

  /// `defects` per million.
  void choose(Random& random, std::uint32_t count, std::uint32_t mtu, std::uint32_t max_inline, std::uint32_t defects);
};

}  // namespace tensorwire::transport::faults
