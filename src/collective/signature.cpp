#include "collective/signature.hpp"

#include "base/bytes.hpp"

namespace tensorwire::collective {

void store(const Signature& signature, std::byte* to) noexcept {
  to[0] = static_cast<std::byte>(signature.communicator);
  to[1] = static_cast<std::byte>(signature.communicator >> 8);
  to[2] = static_cast<std::byte>(signature.algorithm);
  to[3] = static_cast<std::byte>(static_cast<unsigned>(signature.dtype) << 4 | static_cast<unsigned>(signature.op));
  store_le32(to + 4, signature.sequence);
  store_le32(to + 8, static_cast<std::uint32_t>(signature.count));
  store_le32(to + 12, static_cast<std::uint32_t>(signature.count >> 32));
}

Signature load_signature(const std::byte* from) noexcept {
  const auto types = std::to_integer<unsigned>(from[3]);
  return {
      .communicator =
          static_cast<std::uint16_t>(std::to_integer<unsigned>(from[0]) | std::to_integer<unsigned>(from[1]) << 8),
      .algorithm = static_cast<Algorithm>(from[2]),
      .dtype = static_cast<DType>(types >> 4),
      .op = static_cast<Op>(types & 0xf),
      .sequence = load_le32(from + 4),
      .count = load_le32(from + 8) | std::uint64_t{load_le32(from + 12)} << 32,
  };
}

std::string_view name_of(SignatureField field) noexcept {
  switch (field) {
    case SignatureField::kNone:
      return "nothing";
    case SignatureField::kCommunicator:
      return "communicator";
    case SignatureField::kSequence:
      return "operation number";
    case SignatureField::kCount:
      return "element count";
    case SignatureField::kDType:
      return "element type";
    case SignatureField::kOp:
      return "operator";
    case SignatureField::kAlgorithm:
      return "algorithm";
  }
  return "unknown field";
}

SignatureField difference(const Signature& mine, const Signature& theirs) noexcept {
  if (mine.communicator != theirs.communicator) return SignatureField::kCommunicator;
  if (mine.sequence != theirs.sequence) return SignatureField::kSequence;
  if (mine.count != theirs.count) return SignatureField::kCount;
  if (mine.dtype != theirs.dtype) return SignatureField::kDType;
  if (mine.op != theirs.op) return SignatureField::kOp;
  if (mine.algorithm != theirs.algorithm) return SignatureField::kAlgorithm;
  return SignatureField::kNone;
}

std::string field_text(const Signature& signature, SignatureField field) {
  switch (field) {
    case SignatureField::kNone:
      return "";
    case SignatureField::kCommunicator:
      return std::to_string(signature.communicator);
    case SignatureField::kSequence:
      return std::to_string(signature.sequence);
    case SignatureField::kCount:
      return std::to_string(signature.count);
    case SignatureField::kDType:
      return std::string{name_of(signature.dtype)};
    case SignatureField::kOp:
      return std::string{name_of(signature.op)};
    case SignatureField::kAlgorithm:
      return std::string{name_of(signature.algorithm)};
  }
  return "";
}

}  // namespace tensorwire::collective
