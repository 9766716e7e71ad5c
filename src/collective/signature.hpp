// The 16 bytes at the head of a slot that say what the writer believes it is taking part in. A rank writes to user
// memory only after the signatures of all its peers equalled its own: ranks that disagree get an error, never each
// other's bytes. Bytes on the wire, little endian:
//   [0,2) communicator  [2] collective << 4 | algorithm  [3] dtype << 4 | op  [4,8) operation sequence
//   [8,14) element count  [14,16) root
// Where peers write into this rank's user memory, the header goes on with this rank's output: [16,20) window  [24,32)
// offset.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "collective/plan.hpp"
#include "collective/types.hpp"

namespace tensorwire::collective {

struct Signature {
  std::uint16_t communicator = 0;
  Algorithm algorithm = Algorithm::kOneShot;
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  std::uint32_t sequence = 0;  ///< of the operation in the communicator, not of the pair
  std::uint64_t count = 0;     ///< of the whole operation, also where it is several sequence numbers; 48 bits travel
  Collective collective = Collective::kAllReduce;
  std::uint16_t root = 0;  ///< of a broadcast; of send/recv: the sender

  bool operator==(const Signature&) const = default;
};

/// @param sequence, count as in Signature
[[nodiscard]] Signature signature_of(const Shape& shape, Algorithm algorithm, std::uint16_t communicator,
                                     std::uint32_t sequence, std::uint64_t count) noexcept;

inline constexpr std::size_t kSignatureBytes = 16;
inline constexpr std::uint64_t kMostCount = (std::uint64_t{1} << 48) - 1;

void store(const Signature& signature, std::byte* to) noexcept;
[[nodiscard]] Signature load_signature(const std::byte* from) noexcept;

/// Where peers may write this rank's output. The numbers mean something to the link only.
struct OutputWindow {
  std::uint32_t window = 0;
  std::uint64_t offset = 0;
};
/// @param header of the slot, as for store(Signature).
void store(const OutputWindow& output, std::byte* header) noexcept;
[[nodiscard]] OutputWindow load_output_window(const std::byte* header) noexcept;

enum class SignatureField : std::uint8_t {
  kNone,
  kCommunicator,
  kSequence,
  kCollective,
  kRoot,
  kCount,
  kDType,
  kOp,
  kAlgorithm
};
[[nodiscard]] std::string_view name_of(SignatureField field) noexcept;

/// The first field that differs, those a caller can get wrong first (collective, root, count, dtype, op) so that the
/// error names the cause and not its consequence (the algorithm follows from the size).
[[nodiscard]] SignatureField difference(const Signature& mine, const Signature& theirs) noexcept;

/// The value of one field, for error lines: "1024", "fp16".
[[nodiscard]] std::string field_text(const Signature& signature, SignatureField field);

}  // namespace tensorwire::collective
