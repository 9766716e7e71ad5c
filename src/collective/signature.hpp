// The 16 bytes at the head of a slot that say what the writer believes it is taking part in. A rank writes to user
// memory only after the signatures of all its peers equalled its own: ranks that disagree get an error, never each
// other's bytes. Bytes on the wire, little endian:
//   [0,2) communicator  [2] algorithm  [3] dtype << 4 | op  [4,8) operation sequence  [8,16) element count
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "collective/types.hpp"

namespace tensorwire::collective {

struct Signature {
  std::uint16_t communicator = 0;
  Algorithm algorithm = Algorithm::kOneShot;
  DType dtype = DType::kFloat32;
  Op op = Op::kSum;
  std::uint32_t sequence = 0;  ///< of the operation in the communicator, not of the pair
  std::uint64_t count = 0;     ///< of the whole operation, also where it is several sequence numbers

  bool operator==(const Signature&) const = default;
};

inline constexpr std::size_t kSignatureBytes = 16;

void store(const Signature& signature, std::byte* to) noexcept;
[[nodiscard]] Signature load_signature(const std::byte* from) noexcept;

enum class SignatureField : std::uint8_t { kNone, kCommunicator, kSequence, kCount, kDType, kOp, kAlgorithm };
[[nodiscard]] std::string_view name_of(SignatureField field) noexcept;

/// The first field that differs, those a caller can get wrong first (count, dtype, op) so that the error names the
/// cause and not its consequence (the algorithm follows from the size).
[[nodiscard]] SignatureField difference(const Signature& mine, const Signature& theirs) noexcept;

/// The value of one field, for error lines: "1024", "fp16".
[[nodiscard]] std::string field_text(const Signature& signature, SignatureField field);

}  // namespace tensorwire::collective
