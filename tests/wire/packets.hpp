// Random but reproducible packets for the tests of this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/random.hpp"
#include "wire/headers.hpp"
#include "wire/icrc.hpp"

namespace tensorwire::wire::testing {

inline std::vector<std::byte> random_bytes(Random& random, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

inline std::vector<std::byte> from_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  return bytes;
}

inline std::vector<Opcode> known_opcodes() {
  std::vector<Opcode> opcodes;
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (traits(static_cast<std::uint8_t>(byte)).known) opcodes.push_back(static_cast<Opcode>(byte));
  }
  return opcodes;
}

/// Every field that the opcode carries is random; every other one has its default, as parse() leaves it.
inline Headers random_headers(Random& random, Opcode opcode, std::uint8_t pad) {
  const OpcodeTraits& t = traits(opcode);
  const auto u32 = [&] { return static_cast<std::uint32_t>(random.next()); };
  const auto coin = [&] { return random.below(2) != 0; };
  Headers h;
  h.opcode = opcode;
  h.solicited = coin();
  h.mig_req = coin();
  h.fecn = coin();
  h.becn = coin();
  h.ack_req = coin();
  h.pad = pad;
  h.pkey = static_cast<std::uint16_t>(random.next());
  h.dest_qpn = u32() & kQpnMask;
  h.psn = u32() & kPsnMask;
  if (t.reth || t.atomic_eth) {
    h.va = random.next();
    h.rkey = u32();
  }
  if (t.reth) h.dma_length = u32();
  if (t.atomic_eth) {
    h.swap_add = random.next();
    h.compare = random.next();
  }
  if (t.aeth) {
    h.syndrome = static_cast<std::uint8_t>(random.next());
    h.msn = u32() & kPsnMask;
  }
  if (t.atomic_ack_eth) h.original = random.next();
  if (t.immediate) h.immediate = u32();
  if (t.invalidate) h.invalidate_rkey = u32();
  if (t.deth) {
    h.qkey = u32();
    h.src_qpn = u32() & kQpnMask;
  }
  return h;
}

/// Payload length that the opcode may have: exactly 16 for a CNP, 0 where it carries none.
inline std::size_t random_payload_bytes(Random& random, Opcode opcode) {
  if (opcode == Opcode::kCnp) return kCnpPayloadBytes;
  return traits(opcode).payload ? random.below(4097) : 0;
}

inline std::uint8_t pad_of(std::size_t payload_bytes) { return static_cast<std::uint8_t>((0 - payload_bytes) & 3U); }

/// Any port pair between two random addresses of the family.
inline Flow random_flow(Random& random, bool ipv6 = false) {
  Flow flow;
  if (ipv6) {
    for (Gid* gid : {&flow.source, &flow.destination}) {
      for (std::uint8_t& byte : gid->bytes) byte = static_cast<std::uint8_t>(random.next());
    }
  } else {
    flow.source = Gid::from_ipv4(static_cast<std::uint32_t>(random.next()));
    flow.destination = Gid::from_ipv4(static_cast<std::uint32_t>(random.next()));
  }
  flow.source_port = static_cast<std::uint16_t>(random.next());
  flow.destination_port = static_cast<std::uint16_t>(random.next());
  return flow;
}

/// A whole UDP payload: headers, payload, zero pad, right ICRC.
inline std::vector<std::byte> make_datagram(const Headers& h, std::span<const std::byte> payload, const Flow& flow,
                                            std::uint16_t ip_id) {
  std::vector<std::byte> datagram(header_bytes(h.opcode) + payload.size() + h.pad + kIcrcBytes);
  const std::size_t stack = encode(h, datagram);
  std::copy(payload.begin(), payload.end(), datagram.begin() + static_cast<std::ptrdiff_t>(stack));
  std::uint32_t crc = icrc_begin(flow, datagram.size(), ip_id);
  crc = icrc_headers(crc, {datagram.data(), stack});
  crc = crc_update(crc, {datagram.data() + stack, payload.size() + h.pad});
  store_le32(datagram.data() + datagram.size() - kIcrcBytes, icrc_finish(crc));
  return datagram;
}

}  // namespace tensorwire::wire::testing
