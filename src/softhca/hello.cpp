#include "softhca/hello.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "softhca/process_slot.hpp"

namespace tensorwire::softhca {

namespace {

constexpr std::uint32_t kMagic = 0x54774843;  // "TwHC"
constexpr std::uint8_t kVersion = 2;
constexpr std::uint8_t kFlagAnswerWanted = 1;

constexpr std::size_t kMagicAt = wire::kBthBytes;
constexpr std::size_t kVersionAt = kMagicAt + 4;
constexpr std::size_t kFlagsAt = kVersionAt + 1;
constexpr std::size_t kSharersAt = kFlagsAt + 1;
constexpr std::size_t kBufferAt = kSharersAt + 2;
constexpr std::size_t kSenderSlotAt = kBufferAt + 8;
constexpr std::size_t kIcrcAt = kSenderSlotAt + 4;
static_assert(kIcrcAt + wire::kIcrcBytes == kHelloBytes);

std::uint32_t icrc_of(std::span<const std::byte> udp_payload, const wire::Flow& flow) noexcept {
  const std::uint32_t begin = wire::icrc_begin(flow, udp_payload.size(), 0);
  return wire::icrc_finish(wire::icrc_headers(begin, udp_payload.first(kIcrcAt)));
}

}  // namespace

std::array<std::byte, kHelloBytes> encode_hello(const Hello& hello, const wire::Flow& flow) noexcept {
  std::array<std::byte, kHelloBytes> bytes{};
  bytes[0] = kHelloOpcode;
  store_be16(&bytes[2], wire::kDefaultPkey);
  bytes[kBthSlotOffset] = std::byte{hello.receiver_slot};
  store_be32(&bytes[kMagicAt], kMagic);
  bytes[kVersionAt] = std::byte{kVersion};
  bytes[kFlagsAt] = hello.answer_wanted ? std::byte{kFlagAnswerWanted} : std::byte{0};
  store_be16(&bytes[kSharersAt], hello.sharers);
  store_be64(&bytes[kBufferAt], hello.receive_buffer_bytes);
  bytes[kSenderSlotAt] = std::byte{hello.sender_slot};
  store_le32(&bytes[kIcrcAt], icrc_of(bytes, flow));
  return bytes;
}

std::optional<Hello> parse_hello(std::span<const std::byte> udp_payload, const wire::Flow& flow) noexcept {
  if (udp_payload.size() != kHelloBytes || udp_payload[0] != kHelloOpcode) return std::nullopt;
  if (load_be32(&udp_payload[kMagicAt]) != kMagic) return std::nullopt;
  if (udp_payload[kVersionAt] != std::byte{kVersion}) return std::nullopt;
  if (load_le32(&udp_payload[kIcrcAt]) != icrc_of(udp_payload, flow)) return std::nullopt;
  Hello hello;
  hello.sender_slot = std::to_integer<std::uint8_t>(udp_payload[kSenderSlotAt]);
  hello.receiver_slot = std::to_integer<std::uint8_t>(udp_payload[kBthSlotOffset]);
  hello.answer_wanted = (udp_payload[kFlagsAt] & std::byte{kFlagAnswerWanted}) != std::byte{0};
  hello.sharers = std::max<std::uint16_t>(1, load_be16(&udp_payload[kSharersAt]));
  hello.receive_buffer_bytes = load_be64(&udp_payload[kBufferAt]);
  return hello;
}

}  // namespace tensorwire::softhca
