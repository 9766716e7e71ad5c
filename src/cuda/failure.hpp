// The first error of a communicator, as one 64-bit word that kernels can store and poll, and as text.
#pragma once

#include <cstdint>
#include <string_view>

namespace tensorwire::cuda {

enum class FailureKind : std::uint8_t {
  kNone = 0,
  kTimeout = 1,       ///< a peer's data did not come within the bound
  kAborted = 2,       ///< by the host of a rank
  kDisagreement = 3,  ///< a peer made another call: of another type, operator, size or kind
};

/// Who is to blame, who says so, and where it waited.
struct Failure {
  FailureKind kind = FailureKind::kNone;
  std::uint8_t peer = 0;
  std::uint8_t reporter = 0;
  std::uint8_t lane = 0;
  std::uint32_t sequence = 0;  ///< of the lane: low half of its operations over lines, or of its pieces; kDisagreement:
                               ///< of the collective's number

  [[nodiscard]] constexpr std::uint64_t packed() const noexcept {
    return std::uint64_t{static_cast<std::uint8_t>(kind)} << 56 | std::uint64_t{peer} << 48 |
           std::uint64_t{reporter} << 40 | std::uint64_t{lane} << 32 | sequence;
  }
  [[nodiscard]] static constexpr Failure unpacked(std::uint64_t word) noexcept {
    return {static_cast<FailureKind>(word >> 56), static_cast<std::uint8_t>(word >> 48),
            static_cast<std::uint8_t>(word >> 40), static_cast<std::uint8_t>(word >> 32),
            static_cast<std::uint32_t>(word)};
  }
};

}  // namespace tensorwire::cuda
