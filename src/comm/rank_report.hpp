// What a rank says of itself when another one asks (bootstrap's roll call): the operation it is in or was in last, whom
// it waits for, and its last operations as they were signed, so that others can see whether they made the same calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/time.hpp"
#include "collective/runner.hpp"
#include "collective/signature.hpp"

namespace tensorwire::comm {

struct RankReport {
  enum class State : std::uint8_t {
    kBetween,      ///< no operation is under way
    kInOperation,  ///< the last of `recent` is
    kFailed        ///< for good, in or after the last of `recent`
  };

  std::uint64_t life = 0;  ///< of the communicator: another one may have had the same number before
  State state = State::kBetween;
  std::uint64_t bytes = 0;                    ///< of the last operation's tensor
  Ps ago = 0;                                 ///< since it began, or ended
  int subject = -1;                           ///< the rank that it waits for, or tells of; -1: none
  collective::Heard heard;                    ///< of the subject
  std::vector<collective::Signature> recent;  ///< the last operations that it entered, the oldest first

  static constexpr std::size_t kMostRecent = 16;
};

[[nodiscard]] std::vector<std::byte> to_bytes(const RankReport& report);
/// nullopt for what is not exactly a report.
[[nodiscard]] std::optional<RankReport> report_from_bytes(std::span<const std::byte> bytes);

}  // namespace tensorwire::comm
