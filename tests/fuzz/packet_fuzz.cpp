// Any bytes as an Ethernet frame and as a RoCEv2 datagram: the parsers read nothing beyond them, and what they accept
// is consistent with itself.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "wire/frame.hpp"
#include "wire/headers.hpp"
#include "wire/icrc.hpp"

namespace {

using namespace tensorwire::wire;

void expect(bool truth) {
  if (!truth) std::abort();
}

void look_at_datagram(std::span<const std::byte> datagram, const FrameInfo& info) {
  Parsed parsed;
  if (parse(datagram, parsed) != ParseStatus::kOk) return;
  expect(parsed.header_bytes + parsed.payload_bytes + parsed.headers.pad + kIcrcBytes == datagram.size());

  // What was parsed, encoded and parsed again, is the same.
  std::array<std::byte, kMaxHeaderBytes + 4 + kIcrcBytes> again{};
  expect(encode(parsed.headers, again) == parsed.header_bytes);
  Parsed second;
  if (parsed.headers.opcode != Opcode::kCnp) {
    // One word of payload where there was some, so that a pad stays legal.
    const std::size_t body = parsed.payload_bytes + parsed.headers.pad == 0 ? 0 : 4;
    expect(parse({again.data(), parsed.header_bytes + body + kIcrcBytes}, second) == ParseStatus::kOk);
    expect(second.headers == parsed.headers);
  }

  std::uint32_t crc = icrc_begin(info.flow, datagram.size(), 0);
  crc = icrc_headers(crc, datagram.first(parsed.header_bytes));
  crc = crc_update(crc, datagram.subspan(parsed.header_bytes, parsed.payload_bytes + parsed.headers.pad));
  const std::size_t tail = kIpv4Bytes - 6 + kUdpBytes + datagram.size() - kIcrcBytes;
  const std::uint32_t shifted = icrc_shift_id(crc, info.ip_id, tail);
  expect(icrc_solve_id(shifted ^ crc, datagram.size()) == info.ip_id);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  look_at_datagram(bytes, FrameInfo{});
  if (const auto frame = parse_frame(bytes)) look_at_datagram(frame->udp_payload, frame->info);
  return 0;
}
