#include "wire/headers.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <set>
#include <string>

#include "packets.hpp"

namespace tensorwire::wire {
namespace {

using testing::from_hex;
using testing::known_opcodes;
using testing::make_datagram;
using testing::pad_of;
using testing::random_bytes;
using testing::random_headers;
using testing::random_payload_bytes;

/// Parses a copy in a heap block of exactly that size, so that AddressSanitizer sees an over-read.
ParseStatus parse_exact(std::span<const std::byte> bytes, Parsed& out) {
  const auto copy = std::make_unique<std::byte[]>(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.get(), bytes.data(), bytes.size());
  return parse({copy.get(), bytes.size()}, out);
}

TEST(Headers, EveryOpcodeRoundTrips) {
  Random random(1);
  for (const Opcode opcode : known_opcodes()) {
    for (int i = 0; i < 200; ++i) {
      const std::size_t payload_bytes = random_payload_bytes(random, opcode);
      const Headers headers = random_headers(random, opcode, pad_of(payload_bytes));
      const auto datagram = make_datagram(headers, random_bytes(random, payload_bytes), {}, 0);
      Parsed parsed;
      ASSERT_EQ(parse_exact(datagram, parsed), ParseStatus::kOk) << name(opcode);
      EXPECT_EQ(parsed.headers, headers) << name(opcode);
      EXPECT_EQ(parsed.header_bytes, header_bytes(opcode));
      EXPECT_EQ(parsed.payload_bytes, payload_bytes);
    }
  }
}

TEST(Headers, EncodeWritesExactlyItsStack) {
  Random random(2);
  for (const Opcode opcode : known_opcodes()) {
    std::array<std::byte, kMaxHeaderBytes + 8> zeros{};
    std::array<std::byte, kMaxHeaderBytes + 8> ones{};
    ones.fill(std::byte{0xff});
    const Headers headers = random_headers(random, opcode, 0);
    const std::size_t n = encode(headers, zeros);
    ASSERT_EQ(encode(headers, ones), n);
    ASSERT_EQ(n, header_bytes(opcode));
    ASSERT_LE(n, kMaxHeaderBytes);
    EXPECT_EQ(std::memcmp(zeros.data(), ones.data(), n), 0) << "a byte was left unwritten: " << name(opcode);
    EXPECT_EQ(zeros[n], std::byte{0});
    EXPECT_EQ(ones[n], std::byte{0xff});
  }
}

TEST(Headers, FieldsOutsideTheStackAreIgnored) {
  Headers headers;
  headers.opcode = Opcode::kRcWriteMiddle;
  headers.dest_qpn = 7;
  Headers noisy = headers;
  noisy.va = noisy.swap_add = noisy.compare = noisy.original = ~0ULL;
  noisy.rkey = noisy.dma_length = noisy.immediate = noisy.invalidate_rkey = noisy.qkey = noisy.msn = ~0U;
  const std::array<std::byte, 4> payload{};
  EXPECT_EQ(make_datagram(headers, payload, {}, 0), make_datagram(noisy, payload, {}, 0));
}

TEST(Headers, BytesOfAWriteOnlyWithImmediate) {
  Headers h;
  h.opcode = Opcode::kRcWriteOnlyImm;
  h.solicited = true;
  h.mig_req = true;
  h.pad = 3;
  h.pkey = 0x1234;
  h.fecn = true;
  h.dest_qpn = 0xa1b2c3;
  h.ack_req = true;
  h.psn = 0x010203;
  h.va = 0x1122334455667788;
  h.rkey = 0xdeadbeef;
  h.dma_length = 0x11;
  h.immediate = 0xcafef00d;
  std::vector<std::byte> out(header_bytes(h.opcode));
  EXPECT_EQ(encode(h, out), 32U);
  EXPECT_EQ(out, from_hex("0bf01234"
                          "80a1b2c3"
                          "80010203"
                          "1122334455667788"
                          "deadbeef"
                          "00000011"
                          "cafef00d"));
}

TEST(Headers, BytesOfAnAckAnAtomicAndACnp) {
  Headers ack;
  ack.opcode = Opcode::kRcAck;
  ack.dest_qpn = 0x11;
  ack.psn = 0x22;
  ack.syndrome = kSyndromeNak | static_cast<std::uint8_t>(NakCode::kRemoteAccess);
  ack.msn = 0x33;
  std::vector<std::byte> out(header_bytes(ack.opcode));
  encode(ack, out);
  EXPECT_EQ(out, from_hex("1100ffff000000110000002262000033"));

  Headers swap;
  swap.opcode = Opcode::kRcCompareSwap;
  swap.va = 0x10;
  swap.rkey = 0x20;
  swap.swap_add = 0x30;
  swap.compare = 0x40;
  out.resize(header_bytes(swap.opcode));
  encode(swap, out);
  EXPECT_EQ(out, from_hex("1300ffff0000000000000000"
                          "00000000000000100000002000000000000000300000000000000040"));

  Headers cnp;
  cnp.opcode = Opcode::kCnp;
  cnp.becn = true;
  cnp.dest_qpn = 0x44;
  const auto datagram = make_datagram(cnp, std::vector<std::byte>(kCnpPayloadBytes), {}, 0);
  EXPECT_EQ(datagram.size(), 32U);
  EXPECT_EQ(datagram[0], std::byte{0x81});
  EXPECT_EQ(datagram[4], std::byte{0x40});
}

TEST(Headers, HeaderBytesOfEveryKind) {
  EXPECT_EQ(header_bytes(Opcode::kRcSendMiddle), 12U);
  EXPECT_EQ(header_bytes(Opcode::kRcSendLastImm), 16U);
  EXPECT_EQ(header_bytes(Opcode::kRcWriteFirst), 28U);
  EXPECT_EQ(header_bytes(Opcode::kRcWriteOnlyImm), 32U);
  EXPECT_EQ(header_bytes(Opcode::kRcReadRequest), 28U);
  EXPECT_EQ(header_bytes(Opcode::kRcReadResponseFirst), 16U);
  EXPECT_EQ(header_bytes(Opcode::kRcReadResponseMiddle), 12U);
  EXPECT_EQ(header_bytes(Opcode::kRcAck), 16U);
  EXPECT_EQ(header_bytes(Opcode::kRcAtomicAck), 24U);
  EXPECT_EQ(header_bytes(Opcode::kRcFetchAdd), 40U);
  EXPECT_EQ(header_bytes(Opcode::kRcSendOnlyInvalidate), 16U);
  EXPECT_EQ(header_bytes(Opcode::kUdSendOnlyImm), 24U);
  EXPECT_EQ(header_bytes(static_cast<Opcode>(0xff)), 12U);
}

TEST(Headers, EveryTruncationIsSafe) {
  Random random(3);
  for (const Opcode opcode : known_opcodes()) {
    const std::size_t payload_bytes = traits(opcode).payload ? kCnpPayloadBytes : 0;
    const auto datagram = make_datagram(random_headers(random, opcode, 0), random_bytes(random, payload_bytes), {}, 0);
    for (std::size_t n = 0; n < datagram.size(); ++n) {
      Parsed parsed;
      const ParseStatus status = parse_exact({datagram.data(), n}, parsed);
      if (n < header_bytes(opcode) + kIcrcBytes) {
        EXPECT_EQ(status, ParseStatus::kTooShort) << name(opcode) << " cut to " << n;
      } else if (opcode == Opcode::kCnp || n % 4 != 0) {
        EXPECT_EQ(status, ParseStatus::kBadLength) << name(opcode) << " cut to " << n;
      } else {
        ASSERT_EQ(status, ParseStatus::kOk) << name(opcode) << " cut to " << n;
        EXPECT_EQ(parsed.header_bytes + parsed.payload_bytes + kIcrcBytes, n);
      }
    }
  }
}

TEST(Headers, RandomBytesNeverCrashAndWhatParsesIsConsistent) {
  Random random(4);
  int accepted = 0;
  for (int i = 0; i < 200'000; ++i) {
    auto bytes = random_bytes(random, random.below(96));
    if (bytes.size() > 1 && random.below(2) != 0)
      bytes[1] &= std::byte{0xf0};  // let the version check pass half the time
    Parsed parsed;
    if (parse_exact(bytes, parsed) != ParseStatus::kOk) {
      EXPECT_EQ(parsed.header_bytes, 0U);
      continue;
    }
    ++accepted;
    ASSERT_EQ(parsed.header_bytes + parsed.payload_bytes + parsed.headers.pad + kIcrcBytes, bytes.size());
    // Encoding what was parsed gives the same headers again (reserved bits aside).
    std::array<std::byte, kMaxHeaderBytes> again{};
    ASSERT_EQ(encode(parsed.headers, again), parsed.header_bytes);
  }
  EXPECT_GT(accepted, 500);
}

TEST(Headers, RejectsWhatIsWrong) {
  Random random(5);
  Parsed parsed;
  Headers h;
  h.opcode = Opcode::kRcWriteMiddle;
  const auto good = make_datagram(h, random_bytes(random, 64), {}, 0);
  ASSERT_EQ(parse(good, parsed), ParseStatus::kOk);

  auto bytes = good;
  bytes[0] = std::byte{0x15};
  EXPECT_EQ(parse(bytes, parsed), ParseStatus::kUnknownOpcode);
  bytes = good;
  bytes[1] = std::byte{0x01};
  EXPECT_EQ(parse(bytes, parsed), ParseStatus::kBadVersion);

  h.pad = 1;
  EXPECT_EQ(parse(make_datagram(h, random_bytes(random, 64), {}, 0), parsed), ParseStatus::kBadLength);
  EXPECT_EQ(parse(make_datagram(h, random_bytes(random, 3), {}, 0), parsed), ParseStatus::kOk);
  h.pad = 0;
  auto empty = make_datagram(h, {}, {}, 0);
  EXPECT_EQ(parse(empty, parsed), ParseStatus::kOk);
  empty[1] = std::byte{0x20};
  EXPECT_EQ(parse(empty, parsed), ParseStatus::kBadPad);

  h.opcode = Opcode::kRcAck;
  EXPECT_EQ(parse(make_datagram(h, random_bytes(random, 4), {}, 0), parsed), ParseStatus::kBadLength);
  auto ack = make_datagram(h, {}, {}, 0);
  ack[1] = std::byte{0x10};
  EXPECT_EQ(parse(ack, parsed), ParseStatus::kBadPad);

  h.opcode = Opcode::kCnp;
  EXPECT_EQ(parse(make_datagram(h, random_bytes(random, 12), {}, 0), parsed), ParseStatus::kBadLength);
  EXPECT_EQ(parse(make_datagram(h, random_bytes(random, 20), {}, 0), parsed), ParseStatus::kBadLength);
  auto cnp = make_datagram(h, random_bytes(random, 16), {}, 0);
  cnp[1] = std::byte{0x10};
  EXPECT_EQ(parse(cnp, parsed), ParseStatus::kBadPad);

  EXPECT_EQ(parse({}, parsed), ParseStatus::kTooShort);
  EXPECT_EQ(parsed.header_bytes, 0U) << "a failed parse leaves nothing of an earlier packet";
}

TEST(Headers, EveryStatusHasAName) {
  std::set<std::string_view> names;
  for (unsigned i = 0; i <= static_cast<unsigned>(ParseStatus::kBadLength); ++i) {
    names.insert(name(static_cast<ParseStatus>(i)));
  }
  EXPECT_EQ(names.size(), 6U);
}

TEST(Opcode, TableHoldsExactlyTheKnownOnes) {
  EXPECT_EQ(known_opcodes().size(), 38U);
  std::set<std::string_view> names;
  for (const Opcode opcode : known_opcodes()) names.insert(name(opcode));
  EXPECT_EQ(names.size(), 38U);
  EXPECT_EQ(name(Opcode::kRcWriteLastImm), "RC RDMA WRITE Last with Immediate");
  EXPECT_FALSE(traits(std::uint8_t{0x15}).known);
  EXPECT_EQ(name(static_cast<Opcode>(0x15)), "unknown opcode");
}

TEST(Opcode, TraitsFollowTheNames) {
  for (const Opcode opcode : known_opcodes()) {
    const OpcodeTraits& t = traits(opcode);
    const std::string text(name(opcode));
    const auto says = [&](const char* word) { return text.find(word) != std::string::npos; };
    EXPECT_EQ(t.immediate, says("Immediate")) << text;
    EXPECT_EQ(t.invalidate, says("Invalidate")) << text;
    EXPECT_EQ(t.send, says("SEND")) << text;
    EXPECT_EQ(t.write, says("WRITE")) << text;
    EXPECT_EQ(t.deth, says("UD")) << text;
    EXPECT_EQ(service_of(opcode) == Service::kRc, says("RC ")) << text;
    EXPECT_EQ(service_of(opcode) == Service::kUc, says("UC ")) << text;
    EXPECT_EQ(service_of(opcode) == Service::kUd, says("UD ")) << text;
    EXPECT_EQ(t.response, says("response") || says("Acknowledge")) << text;
    EXPECT_EQ(t.position == Position::kFirst, says("First")) << text;
    EXPECT_EQ(t.position == Position::kMiddle, says("Middle")) << text;
    EXPECT_EQ(t.position == Position::kLast, says("Last")) << text;
    EXPECT_EQ(t.reth, says("READ Request") || (t.write && (says("First") || says("Only")))) << text;
    EXPECT_EQ(t.aeth, t.response && !says("Middle")) << text;
    EXPECT_EQ(t.atomic_eth, says("CmpSwap") || says("FetchAdd")) << text;
    EXPECT_EQ(t.atomic_ack_eth, says("ATOMIC Acknowledge")) << text;
    EXPECT_EQ(t.payload, t.send || t.write || says("READ response") || says("CNP")) << text;
  }
}

TEST(Psn, WrapsAtTwoToThe24) {
  EXPECT_EQ(psn_add(0xffffff, 1), 0U);
  EXPECT_EQ(psn_add(0xfffff0, 0x20), 0x10U);
  EXPECT_EQ(psn_diff(0, 0xffffff), 1);
  EXPECT_EQ(psn_diff(0xffffff, 0), -1);
  EXPECT_EQ(psn_diff(0x800000, 0), -0x800000);
  EXPECT_EQ(psn_diff(0, 0x800000), -0x800000);
  EXPECT_EQ(psn_diff(0x7fffff, 0), 0x7fffff);
  EXPECT_EQ(psn_diff(5, 5), 0);
}

TEST(Psn, DiffUndoesAdd) {
  Random random(6);
  for (int i = 0; i < 10'000; ++i) {
    const std::uint32_t psn = random.below(1U << 24);
    const std::uint32_t n = random.below(1U << 23);
    ASSERT_EQ(psn_diff(psn_add(psn, n), psn), static_cast<std::int32_t>(n));
    ASSERT_EQ(psn_diff(psn, psn_add(psn, n)), -static_cast<std::int32_t>(n));
  }
}

}  // namespace
}  // namespace tensorwire::wire
