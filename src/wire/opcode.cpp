#include "wire/opcode.hpp"

#include <array>
#include <cstddef>

namespace tensorwire::wire {

namespace {

struct Entry {
  OpcodeTraits traits;
  std::string_view name;
};

constexpr OpcodeTraits send(Position position) {
  return {.known = true, .position = position, .send = true, .payload = true};
}

constexpr OpcodeTraits write(Position position) {
  return {.known = true, .position = position, .write = true, .payload = true};
}

constexpr OpcodeTraits response(Position position) { return {.known = true, .position = position, .response = true}; }

constexpr OpcodeTraits fetch() { return {.known = true, .fetch = true}; }

constexpr OpcodeTraits with_immediate(OpcodeTraits t) {
  t.immediate = true;
  return t;
}

constexpr OpcodeTraits with_invalidate(OpcodeTraits t) {
  t.invalidate = true;
  return t;
}

constexpr OpcodeTraits with_reth(OpcodeTraits t) {
  t.reth = true;
  return t;
}

constexpr OpcodeTraits with_atomic_eth(OpcodeTraits t) {
  t.atomic_eth = true;
  return t;
}

constexpr OpcodeTraits with_aeth(OpcodeTraits t) {
  t.aeth = true;
  return t;
}

constexpr OpcodeTraits with_atomic_ack_eth(OpcodeTraits t) {
  t.atomic_ack_eth = true;
  return t;
}

constexpr OpcodeTraits with_deth(OpcodeTraits t) {
  t.deth = true;
  return t;
}

constexpr OpcodeTraits with_payload(OpcodeTraits t) {
  t.payload = true;
  return t;
}

constexpr std::array<Entry, 256> make_table() {
  std::array<Entry, 256> table{};
  for (Entry& entry : table) entry.name = "unknown opcode";
  const auto set = [&](Opcode opcode, OpcodeTraits t, std::string_view name) {
    table[static_cast<std::size_t>(opcode)] = Entry{t, name};
  };
  using enum Opcode;
  using enum Position;

  set(kRcSendFirst, send(kFirst), "RC SEND First");
  set(kRcSendMiddle, send(kMiddle), "RC SEND Middle");
  set(kRcSendLast, send(kLast), "RC SEND Last");
  set(kRcSendLastImm, with_immediate(send(kLast)), "RC SEND Last with Immediate");
  set(kRcSendOnly, send(kOnly), "RC SEND Only");
  set(kRcSendOnlyImm, with_immediate(send(kOnly)), "RC SEND Only with Immediate");
  set(kRcSendLastInvalidate, with_invalidate(send(kLast)), "RC SEND Last with Invalidate");
  set(kRcSendOnlyInvalidate, with_invalidate(send(kOnly)), "RC SEND Only with Invalidate");

  set(kRcWriteFirst, with_reth(write(kFirst)), "RC RDMA WRITE First");
  set(kRcWriteMiddle, write(kMiddle), "RC RDMA WRITE Middle");
  set(kRcWriteLast, write(kLast), "RC RDMA WRITE Last");
  set(kRcWriteLastImm, with_immediate(write(kLast)), "RC RDMA WRITE Last with Immediate");
  set(kRcWriteOnly, with_reth(write(kOnly)), "RC RDMA WRITE Only");
  set(kRcWriteOnlyImm, with_immediate(with_reth(write(kOnly))), "RC RDMA WRITE Only with Immediate");

  set(kRcReadRequest, with_reth(fetch()), "RC RDMA READ Request");
  set(kRcReadResponseFirst, with_payload(with_aeth(response(kFirst))), "RC RDMA READ response First");
  set(kRcReadResponseMiddle, with_payload(response(kMiddle)), "RC RDMA READ response Middle");
  set(kRcReadResponseLast, with_payload(with_aeth(response(kLast))), "RC RDMA READ response Last");
  set(kRcReadResponseOnly, with_payload(with_aeth(response(kOnly))), "RC RDMA READ response Only");
  set(kRcAck, with_aeth(response(kOnly)), "RC Acknowledge");

  set(kRcAtomicAck, with_atomic_ack_eth(with_aeth(response(kOnly))), "RC ATOMIC Acknowledge");
  set(kRcCompareSwap, with_atomic_eth(fetch()), "RC CmpSwap");
  set(kRcFetchAdd, with_atomic_eth(fetch()), "RC FetchAdd");

  set(kUcSendFirst, send(kFirst), "UC SEND First");
  set(kUcSendMiddle, send(kMiddle), "UC SEND Middle");
  set(kUcSendLast, send(kLast), "UC SEND Last");
  set(kUcSendLastImm, with_immediate(send(kLast)), "UC SEND Last with Immediate");
  set(kUcSendOnly, send(kOnly), "UC SEND Only");
  set(kUcSendOnlyImm, with_immediate(send(kOnly)), "UC SEND Only with Immediate");

  set(kUcWriteFirst, with_reth(write(kFirst)), "UC RDMA WRITE First");
  set(kUcWriteMiddle, write(kMiddle), "UC RDMA WRITE Middle");
  set(kUcWriteLast, write(kLast), "UC RDMA WRITE Last");
  set(kUcWriteLastImm, with_immediate(write(kLast)), "UC RDMA WRITE Last with Immediate");
  set(kUcWriteOnly, with_reth(write(kOnly)), "UC RDMA WRITE Only");
  set(kUcWriteOnlyImm, with_immediate(with_reth(write(kOnly))), "UC RDMA WRITE Only with Immediate");

  set(kUdSendOnly, with_deth(send(kOnly)), "UD SEND Only");
  set(kUdSendOnlyImm, with_immediate(with_deth(send(kOnly))), "UD SEND Only with Immediate");

  // Its 16 reserved bytes have the place of a payload; parse() holds it to exactly those.
  set(kCnp, with_payload({.known = true}), "RoCEv2 CNP");
  return table;
}

constexpr std::array<Entry, 256> kTable = make_table();

}  // namespace

const OpcodeTraits& traits(std::uint8_t opcode_byte) noexcept { return kTable[opcode_byte].traits; }

const OpcodeTraits& traits(Opcode opcode) noexcept { return traits(static_cast<std::uint8_t>(opcode)); }

std::string_view name(Opcode opcode) noexcept { return kTable[static_cast<std::uint8_t>(opcode)].name; }

}  // namespace tensorwire::wire
