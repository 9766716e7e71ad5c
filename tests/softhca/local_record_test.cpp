#include "softhca/local_record.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/bytes.hpp"
#include "base/random.hpp"
#include "wire/opcode.hpp"

namespace tensorwire::softhca {
namespace {

struct Slot {
  std::array<std::byte, kSlotBodyBytes> body{};
  std::array<std::byte, kSlotDataBytes> data{};
  [[nodiscard]] RingSlot ref() { return {body, data}; }
};

wire::Headers write_headers(std::uint32_t bytes) {
  wire::Headers h;
  h.opcode = wire::Opcode::kRcWriteOnlyImm;
  h.solicited = true;
  h.ack_req = true;
  h.pad = static_cast<std::uint8_t>((4 - bytes % 4) % 4);
  h.dest_qpn = 0x123456;
  h.psn = 0xfffffe;
  h.va = 0x0123'4567'89ab'cdefULL;
  h.rkey = 0xdeadbeef;
  h.dma_length = bytes;
  h.immediate = 0x600dcafe;
  return h;
}

TEST(LocalRecord, InlinePayloadOfEverySizeComesBack) {
  Slot slot;
  for (std::uint32_t bytes = 0; bytes <= kSlotDataBytes; ++bytes) {
    const wire::Headers headers = write_headers(bytes);
    const std::span<std::byte> to = encode_inline(headers, bytes, slot.ref());
    ASSERT_EQ(to.size(), bytes);
    for (std::uint32_t i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(i * 7 + bytes);
    LocalRecord record;
    ASSERT_TRUE(decode(slot.ref(), record)) << bytes;
    EXPECT_EQ(record.headers, headers);
    EXPECT_EQ(record.payload_bytes, bytes);
    EXPECT_FALSE(record.pulled);
    ASSERT_TRUE(std::ranges::equal(record.bytes, to)) << bytes;
  }
}

TEST(LocalRecord, PiecesOfEveryCountComeBack) {
  Slot slot;
  Random random(11);
  for (std::uint8_t count = 1; count <= transport::kMaxSge; ++count) {
    transport::TxDesc desc;
    desc.piece_count = count;
    for (std::size_t i = 0; i < count; ++i) {
      desc.pieces[i].address = random.next();
      desc.pieces[i].length = random.below(1U << 24);
      desc.payload_bytes += desc.pieces[i].length;
    }
    desc.headers = write_headers(desc.payload_bytes);
    desc.withdrawals = random.next();
    encode_pulled(desc, slot.ref());
    LocalRecord record;
    ASSERT_TRUE(decode(slot.ref(), record));
    EXPECT_EQ(record.headers, desc.headers);
    EXPECT_TRUE(record.pulled);
    EXPECT_EQ(record.withdrawals, desc.withdrawals);
    ASSERT_EQ(record.piece_count, count);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(record.pieces[i].address, desc.pieces[i].address);
      EXPECT_EQ(record.pieces[i].length, desc.pieces[i].length);
    }
  }
}

TEST(LocalRecord, AcknowledgesComeBack) {
  Slot slot;
  wire::Headers ack;
  ack.opcode = wire::Opcode::kRcAck;
  ack.dest_qpn = 9;
  ack.psn = 77;
  ack.syndrome = wire::kSyndromeNak | 2;
  ack.msn = 0xabcdef;
  EXPECT_TRUE(encode_inline(ack, 0, slot.ref()).empty());
  LocalRecord record;
  ASSERT_TRUE(decode(slot.ref(), record));
  EXPECT_EQ(record.headers, ack);
}

/// Where one direction of a connection goes in packets, which are marked, and the other one by a ring.
TEST(LocalRecord, CongestionNotificationsComeBack) {
  Slot slot;
  wire::Headers cnp;
  cnp.opcode = wire::Opcode::kCnp;
  cnp.becn = true;
  cnp.dest_qpn = 9;
  LocalRecord record;
  for (const std::uint32_t bytes : {0, 12, 16, 20}) {
    std::ranges::fill(encode_inline(cnp, bytes, slot.ref()), std::byte{0});
    EXPECT_EQ(decode(slot.ref(), record), bytes == wire::kCnpPayloadBytes) << bytes;
  }
  std::ranges::fill(encode_inline(cnp, wire::kCnpPayloadBytes, slot.ref()), std::byte{0});
  ASSERT_TRUE(decode(slot.ref(), record));
  EXPECT_EQ(record.headers, cnp);
  EXPECT_EQ(record.payload_bytes, wire::kCnpPayloadBytes);
}

class Damaged : public testing::Test {
 protected:
  // Offsets of the layout that local_record.hpp gives.
  static constexpr std::size_t kKind = 4, kPieces = 5, kHeaderLength = 6, kHeaders = 8, kFirstPiece = 56;

  void SetUp() override {
    transport::TxDesc desc;
    desc.piece_count = 2;
    desc.pieces[0] = {nullptr, 0x1000, 5000};
    desc.pieces[1] = {nullptr, 0x9000, 3000};
    desc.payload_bytes = 8000;
    desc.headers = write_headers(8000);
    encode_pulled(desc, slot_.ref());
    ASSERT_TRUE(accepted());
  }
  bool accepted() {
    LocalRecord record;
    return decode(slot_.ref(), record);
  }
  Slot slot_;
};

TEST_F(Damaged, Kind) {
  for (int kind = 0; kind < 256; ++kind) {
    slot_.body[kKind] = static_cast<std::byte>(kind);
    EXPECT_EQ(accepted(), kind == 2) << kind;
  }
}
TEST_F(Damaged, PieceCount) {
  for (int count = 0; count < 256; ++count) {
    slot_.body[kPieces] = static_cast<std::byte>(count);
    // Two pieces are right; up to five, those after the second are zeros and add nothing.
    EXPECT_EQ(accepted(), count >= 2 && count <= 5) << count;
  }
}
TEST_F(Damaged, HeaderLength) {
  for (int length = 0; length < 256; ++length) {
    slot_.body[kHeaderLength] = static_cast<std::byte>(length);
    EXPECT_EQ(accepted(), length == 12 + 16 + 4) << length;
  }
}
TEST_F(Damaged, PayloadLength) {
  for (const std::uint32_t bytes : {0U, 7999U, 8001U, transport::kMaxMessageBytes + 1, UINT32_MAX}) {
    store_le32(slot_.body.data(), bytes);
    EXPECT_FALSE(accepted()) << bytes;
  }
}
TEST_F(Damaged, PieceLengthsThatOverflow) {
  store_le32(slot_.body.data() + kFirstPiece + 8, UINT32_MAX);
  store_le32(slot_.body.data() + kFirstPiece + 12 + 8, 8001);  // the sum is 8000 modulo 2^32
  EXPECT_FALSE(accepted());
}
TEST_F(Damaged, OpcodeWithoutPayload) {
  slot_.body[kHeaders] = static_cast<std::byte>(wire::Opcode::kRcAck);
  slot_.body[kHeaderLength] = std::byte{16};
  EXPECT_FALSE(accepted());
}
/// A channel is made for a connection; and bytes that are pulled would come to lie where the network header goes.
TEST_F(Damaged, OpcodeOfADatagram) {
  for (const wire::Opcode opcode : {wire::Opcode::kUdSendOnly, wire::Opcode::kUdSendOnlyImm}) {
    wire::Headers datagram = write_headers(8000);
    datagram.opcode = opcode;
    wire::encode(datagram, std::span(slot_.body).subspan(kHeaders, wire::kMaxHeaderBytes));
    slot_.body[kHeaderLength] = static_cast<std::byte>(wire::header_bytes(opcode));
    EXPECT_FALSE(accepted());
  }
}
TEST_F(Damaged, UnknownOpcode) {
  for (const int opcode : {0x15, 0x2c, 0x63, 0xc0, 0xff}) {
    slot_.body[kHeaders] = static_cast<std::byte>(opcode);
    slot_.body[kHeaderLength] = std::byte{12};
    EXPECT_FALSE(accepted()) << opcode;
  }
}
TEST_F(Damaged, InlineLongerThanItsSlot) {
  slot_.body[kKind] = std::byte{1};
  slot_.body[kPieces] = std::byte{0};
  store_le32(slot_.body.data(), kSlotDataBytes);
  EXPECT_TRUE(accepted());
  store_le32(slot_.body.data(), kSlotDataBytes + 1);
  EXPECT_FALSE(accepted());
}

/// Whatever lies in a slot: decode() reads nothing outside it (the sanitizers watch), and what it accepts is
/// consistent.
TEST(LocalRecord, RandomContentsDoNoHarm) {
  Random random(0x5107);
  Slot slot;
  Slot good;
  std::ignore = encode_inline(write_headers(100), 100, good.ref());
  int accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    if (round % 2 == 0) {  // noise
      for (std::size_t i = 0; i < kSlotBodyBytes; i += 8) {
        const std::uint64_t bits = random.next();
        std::memcpy(slot.body.data() + i, &bits, 8);
      }
      if (random.chance(500'000)) slot.body[4] = static_cast<std::byte>(random.below(4));
      if (random.chance(500'000)) slot.body[6] = static_cast<std::byte>(random.below(48));
    } else {  // a good record with a few bytes changed
      slot.body = good.body;
      for (std::uint32_t n = 1 + random.below(4); n != 0; --n) {
        slot.body[random.below(kSlotBodyBytes)] = static_cast<std::byte>(random.below(256));
      }
    }
    LocalRecord record;
    if (!decode(slot.ref(), record)) continue;
    ++accepted;
    ASSERT_TRUE(wire::traits(record.headers.opcode).known);
    ASSERT_LE(record.payload_bytes, transport::kMaxMessageBytes);
    ASSERT_TRUE(record.payload_bytes == 0 || wire::traits(record.headers.opcode).payload);
    if (record.pulled) {
      ASSERT_GE(record.piece_count, 1);
      ASSERT_LE(record.piece_count, transport::kMaxSge);
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < record.piece_count; ++i) sum += record.pieces[i].length;
      ASSERT_EQ(sum, record.payload_bytes);
    } else {
      ASSERT_EQ(record.bytes.size(), record.payload_bytes);
      const std::byte* const begin = record.bytes.data();
      const bool in_body =
          begin >= slot.body.data() && begin + record.bytes.size() <= slot.body.data() + kSlotBodyBytes;
      const bool in_data =
          begin >= slot.data.data() && begin + record.bytes.size() <= slot.data.data() + kSlotDataBytes;
      ASSERT_TRUE(in_body || in_data);
    }
  }
  EXPECT_GT(accepted, 1000) << "the damage is too heavy to test anything";
}

}  // namespace
}  // namespace tensorwire::softhca
