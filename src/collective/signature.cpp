#include "collective/signature.hpp"

#include "base/bytes.hpp"

namespace tensorwire::collective {

Signature signature_of(const Shape& shape, Algorithm algorithm, std::uint16_t communicator, std::uint32_t sequence,
                       std::uint64_t count) noexcept {
  return {communicator, algorithm, shape.dtype, shape.op, sequence, count, shape.collective, shape.root};
}

void store(const Signature& signature, std::byte* to) noexcept {
  const auto nibbles = [](auto high, auto low) {
    return static_cast<std::byte>(static_cast<unsigned>(high) << 4 | static_cast<unsigned>(low));
  };
  to[0] = static_cast<std::byte>(signature.communicator);
  to[1] = static_cast<std::byte>(signature.communicator >> 8);
  to[2] = nibbles(signature.collective, signature.algorithm);
  to[3] = nibbles(signature.dtype, signature.op);
  store_le32(to + 4, signature.sequence);
  store_le32(to + 8, static_cast<std::uint32_t>(signature.count));
  store_le32(to + 12, static_cast<std::uint32_t>(signature.count >> 32 & 0xffff) | std::uint32_t{signature.root} << 16);
}

Signature load_signature(const std::byte* from) noexcept {
  const auto kinds = std::to_integer<unsigned>(from[2]);
  const auto types = std::to_integer<unsigned>(from[3]);
  const std::uint32_t count_and_root = load_le32(from + 12);
  return {
      .communicator =
          static_cast<std::uint16_t>(std::to_integer<unsigned>(from[0]) | std::to_integer<unsigned>(from[1]) << 8),
      .algorithm = static_cast<Algorithm>(kinds & 0xf),
      .dtype = static_cast<DType>(types >> 4),
      .op = static_cast<Op>(types & 0xf),
      .sequence = load_le32(from + 4),
      .count = load_le32(from + 8) | std::uint64_t{count_and_root & 0xffff} << 32,
      .collective = static_cast<Collective>(kinds >> 4),
      .root = static_cast<std::uint16_t>(count_and_root >> 16),
  };
}

void store(const OutputWindow& output, std::byte* header) noexcept {
  store_le32(header + 16, output.window);
  store_le32(header + 24, static_cast<std::uint32_t>(output.offset));
  store_le32(header + 28, static_cast<std::uint32_t>(output.offset >> 32));
}

OutputWindow load_output_window(const std::byte* header) noexcept {
  return {load_le32(header + 16), load_le32(header + 24) | std::uint64_t{load_le32(header + 28)} << 32};
}

std::string_view name_of(SignatureField field) noexcept {
  switch (field) {
    case SignatureField::kNone:
      return "nothing";
    case SignatureField::kCommunicator:
      return "communicator";
    case SignatureField::kSequence:
      return "operation number";
    case SignatureField::kCollective:
      return "collective";
    case SignatureField::kRoot:
      return "root";
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
  if (mine.collective != theirs.collective) return SignatureField::kCollective;
  if (mine.root != theirs.root) return SignatureField::kRoot;
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
    case SignatureField::kCollective:
      return std::string{name_of(signature.collective)};
    case SignatureField::kRoot:
      return std::to_string(signature.root);
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
