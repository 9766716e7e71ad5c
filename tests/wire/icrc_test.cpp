#include "wire/icrc.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "packets.hpp"
#include "reference_crc.hpp"
#include "wire/frame.hpp"

namespace tensorwire::wire {
namespace {

using testing::from_hex;
using testing::known_opcodes;
using testing::make_datagram;
using testing::pad_of;
using testing::random_bytes;
using testing::random_flow;
using testing::random_headers;
using testing::random_payload_bytes;
using testing::reference_crc;
using testing::reference_icrc;

/// The frame that a datagram travels in, from its IP header on and without the ICRC.
std::vector<std::byte> ip_packet_without_icrc(const FrameInfo& info, std::span<const std::byte> datagram) {
  std::array<std::byte, kMaxFrameHeaderBytes> head;
  const std::size_t head_bytes = encode_frame_headers(info, datagram, head);
  std::vector<std::byte> packet(head.begin() + kEthernetBytes, head.begin() + static_cast<std::ptrdiff_t>(head_bytes));
  packet.insert(packet.end(), datagram.begin(), datagram.end() - kIcrcBytes);
  return packet;
}

/// ICRC register before icrc_finish() of a datagram whose flow and identification are given.
std::uint32_t register_after(std::span<const std::byte> datagram, const Flow& flow, std::uint16_t ip_id) {
  const std::size_t stack = header_bytes(static_cast<Opcode>(datagram[0]));
  const std::uint32_t crc = icrc_headers(icrc_begin(flow, datagram.size(), ip_id), datagram.first(stack));
  return crc_update(crc, datagram.subspan(stack, datagram.size() - stack - kIcrcBytes));
}

TEST(Crc, IsCrc32WithoutTheInversions) {
  const auto digits = from_hex("313233343536373839");  // "123456789": the check value of CRC-32
  EXPECT_EQ(~crc_update(0xffffffffU, digits), 0xcbf43926U);
  const std::array<std::byte, 8> ones{std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                                      std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff}};
  EXPECT_EQ(crc_update(0xffffffffU, ones), 0xdebb20e3U);
  EXPECT_EQ(crc_update(0x12345678U, {}), 0x12345678U);
}

TEST(Crc, EqualsTheBitwiseOneAtEveryLengthAndAlignment) {
  Random random(1);
  const auto bytes = random_bytes(random, 9000);
  for (std::size_t n = 0; n <= 600; ++n) {
    const std::size_t at = random.below(64);
    const auto seed = static_cast<std::uint32_t>(random.next());
    ASSERT_EQ(crc_update(seed, {bytes.data() + at, n}), reference_crc(seed, {bytes.data() + at, n})) << n;
  }
  for (const std::size_t n : {1023U, 1024U, 4095U, 4096U, 4097U, 8900U}) {
    ASSERT_EQ(crc_update(7, {bytes.data() + 3, n}), reference_crc(7, {bytes.data() + 3, n})) << n;
  }
}

TEST(Crc, CanBeSplitAnywhere) {
  Random random(2);
  const auto bytes = random_bytes(random, 300);
  const std::uint32_t whole = crc_update(1, bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    const std::span<const std::byte> span(bytes);
    ASSERT_EQ(crc_update(crc_update(1, span.first(cut)), span.subspan(cut)), whole);
  }
}

TEST(CrcCopy, CopiesAllAndOnlyThatAndGivesTheCrc) {
  Random random(3);
  const auto from = random_bytes(random, 70'000);
  std::vector<std::byte> to(70'200);
  std::vector<std::size_t> lengths;
  for (std::size_t n = 0; n <= 700; ++n) lengths.push_back(n);
  for (std::size_t block = 1024; block <= 8192; block *= 2) {
    for (std::size_t n = block - 20; n <= block + 20; ++n) lengths.push_back(n);
  }
  lengths.push_back(65'507);
  for (const std::size_t n : lengths) {
    const std::size_t source_at = random.below(64);
    const std::size_t at = 64 + random.below(64);
    std::fill(to.begin(), to.end(), std::byte{0x5a});
    const std::span<const std::byte> source(from.data() + source_at, n);
    ASSERT_EQ(crc_copy(9, to.data() + at, source), crc_update(9, source)) << n;
    ASSERT_TRUE(std::equal(source.begin(), source.end(), to.begin() + static_cast<std::ptrdiff_t>(at))) << n;
    ASSERT_EQ(to[at - 1], std::byte{0x5a}) << n;
    ASSERT_EQ(to[at + n], std::byte{0x5a}) << n;
    ASSERT_EQ(std::count(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(at), std::byte{0x5a}),
              static_cast<std::ptrdiff_t>(at));
  }
}

// Computed by another implementation (scapy's RoCE layer gives the same).
TEST(Icrc, Ipv4Vector) {
  const auto packet = from_hex(
      "4502004c98c640004011207fc0a80007c0a80002"
      "c00012b700380000"
      "0a00ffff0000001180abcdef1122334455667788deadbeef00000010"
      "000102030405060708090a0b0c0d0e0f");
  const Flow flow = ipv4_flow(0xc0a80007, 0xc0a80002, 0xc000, kRoceUdpPort);
  constexpr std::size_t kUdpPayload = 28 + 16 + kIcrcBytes;
  const std::span<const std::byte> span(packet);
  std::uint32_t crc = icrc_begin(flow, kUdpPayload, 0x98c6);
  crc = icrc_headers(crc, span.subspan(28, 28));
  crc = crc_update(crc, span.subspan(56));
  std::vector<std::byte> stored(4);
  store_le32(stored.data(), icrc_finish(crc));
  EXPECT_EQ(stored, from_hex("5f83248b"));
  EXPECT_EQ(reference_icrc(packet), icrc_finish(crc));
}

// Computed by another implementation; zlib in tests/peers/check_icrc.py gives the same.
TEST(Icrc, Ipv6Vector) {
  const auto packet = from_hex(
      "6021234500381140fe80000000000000021122fffe334455fe800000000000000a0b0cfffe0d0e0f"
      "c00012b700380000"
      "0a00ffff0000001180abcdef1122334455667788deadbeef00000010"
      "000102030405060708090a0b0c0d0e0f");
  const Flow flow{.source = *parse_gid("fe80::211:22ff:fe33:4455"),
                  .destination = *parse_gid("fe80::a0b:cff:fe0d:e0f"),
                  .source_port = 0xc000,
                  .destination_port = kRoceUdpPort};
  const std::span<const std::byte> span(packet);
  std::uint32_t crc = icrc_begin(flow, 28 + 16 + kIcrcBytes, 0x98c6);  // IPv6 has no identification
  crc = icrc_headers(crc, span.subspan(48, 28));
  crc = crc_update(crc, span.subspan(76));
  std::vector<std::byte> stored(4);
  store_le32(stored.data(), icrc_finish(crc));
  EXPECT_EQ(stored, from_hex("72640804"));
  EXPECT_EQ(reference_icrc(packet), icrc_finish(crc));
}

TEST(Icrc, EqualsTheReferenceForEveryOpcode) {
  Random random(4);
  for (const Opcode opcode : known_opcodes()) {
    for (int i = 0; i < 10; ++i) {
      const std::size_t payload_bytes = random_payload_bytes(random, opcode);
      const FrameInfo info{.flow = random_flow(random, i % 2 != 0),
                           .tos = static_cast<std::uint8_t>(random.next()),
                           .ttl = static_cast<std::uint8_t>(random.next()),
                           .ip_id = static_cast<std::uint16_t>(random.next())};
      const auto datagram = make_datagram(random_headers(random, opcode, pad_of(payload_bytes)),
                                          random_bytes(random, payload_bytes), info.flow, info.ip_id);
      ASSERT_EQ(load_le32(datagram.data() + datagram.size() - kIcrcBytes),
                reference_icrc(ip_packet_without_icrc(info, datagram)))
          << name(opcode);
    }
  }
}

TEST(Icrc, RoutersMayChangeTosTtlAndCongestionBits) {
  Random random(5);
  Headers headers = random_headers(random, Opcode::kRcWriteOnly, 0);
  const auto payload = random_bytes(random, 64);
  const Flow flow = random_flow(random);
  headers.fecn = headers.becn = false;
  const auto quiet = make_datagram(headers, payload, flow, 3);
  headers.fecn = headers.becn = true;
  const auto marked = make_datagram(headers, payload, flow, 3);
  EXPECT_TRUE(std::equal(quiet.end() - kIcrcBytes, quiet.end(), marked.end() - kIcrcBytes));
  headers.ack_req = !headers.ack_req;  // but this bit is covered
  const auto other = make_datagram(headers, payload, flow, 3);
  EXPECT_FALSE(std::equal(quiet.end() - kIcrcBytes, quiet.end(), other.end() - kIcrcBytes));
}

TEST(IcrcId, ShiftEqualsComputingAnew) {
  Random random(6);
  for (int i = 0; i < 3000; ++i) {
    const Opcode opcode = known_opcodes()[random.below(26)];
    const std::size_t payload_bytes = random_payload_bytes(random, opcode);
    const Flow flow = random_flow(random);
    const auto id = static_cast<std::uint16_t>(i % 2 == 0 ? random.below(64) : random.below(65'536));
    const auto datagram = make_datagram(random_headers(random, opcode, pad_of(payload_bytes)),
                                        random_bytes(random, payload_bytes), flow, id);
    // Right after the IP and UDP headers ...
    ASSERT_EQ(icrc_shift_id(icrc_begin(flow, datagram.size(), 0), id, kIpv4Bytes - 6 + kUdpBytes),
              icrc_begin(flow, datagram.size(), id));
    // ... and at the end of the packet.
    const std::size_t tail = kIpv4Bytes - 6 + kUdpBytes + datagram.size() - kIcrcBytes;
    ASSERT_EQ(icrc_shift_id(register_after(datagram, flow, 0), id, tail), register_after(datagram, flow, id));
  }
}

/// Runs of packets of one flow and length, as they come: neither what went before nor the identification may matter.
TEST(IcrcRun, EveryPacketHasTheRegisterOfItsOwn) {
  Random random(8);
  std::vector<Flow> flows;
  for (int i = 0; i < 4; ++i) flows.push_back(random_flow(random));
  Flow ipv6 = flows.front();
  ipv6.source.bytes[0] = ipv6.destination.bytes[0] = 0xfe;
  flows.push_back(ipv6);
  IcrcRun run;
  Flow flow = flows.front();
  std::size_t bytes = 16;
  for (int i = 0; i < 5000; ++i) {
    if (random.below(4) == 0) flow = flows[random.below(5)];
    if (random.below(4) == 0) flow.source_port = static_cast<std::uint16_t>(0xc000 + random.below(2));
    if (random.below(4) == 0) bytes = 16 + random.below(3) * 2050;
    const auto id = static_cast<std::uint16_t>(random.below(4) == 0 ? random.below(65'536) : random.below(66));
    ASSERT_EQ(run.begin(flow, bytes, id), icrc_begin(flow, bytes, id)) << i;
  }
}

TEST(IcrcId, ShiftIsRightAtEveryDistance) {
  Random random(7);
  const std::vector<std::byte> zeros(65'536);
  const std::array<std::byte, 2> id_bytes{std::byte{0xbe}, std::byte{0xef}};
  std::uint32_t crc = crc_update(0, id_bytes);
  for (std::size_t tail = 0; tail < 9'300; ++tail) {
    ASSERT_EQ(icrc_shift_id(0, 0xbeef, tail), crc) << tail;
    crc = crc_update(crc, {zeros.data(), 1});
  }
  for (int i = 0; i < 200; ++i) {
    const std::size_t tail = random.below(65'536);
    ASSERT_EQ(icrc_shift_id(0, 0xbeef, tail), crc_update(crc_update(0, id_bytes), {zeros.data(), tail})) << tail;
  }
  EXPECT_EQ(icrc_shift_id(0x1234, 0, 100), 0x1234U);
}

TEST(IcrcId, SolverFindsEveryIdentification) {
  for (const std::size_t udp_payload : {std::size_t{20}, std::size_t{32}, std::size_t{4096 + 16 + 28}}) {
    const std::size_t tail = kIpv4Bytes - 6 + kUdpBytes + udp_payload - kIcrcBytes;
    for (unsigned id = 0; id < 65'536; ++id) {
      const std::uint32_t difference = icrc_shift_id(0, static_cast<std::uint16_t>(id), tail);
      ASSERT_EQ(icrc_solve_id(difference, udp_payload), static_cast<int>(id));
    }
  }
}

TEST(IcrcId, SolverFindsTheIdOfRealPackets) {
  Random random(8);
  for (int i = 0; i < 2000; ++i) {
    const std::size_t payload_bytes = i % 5 == 0 ? 4096 : random.below(9001);
    const Flow flow = random_flow(random);
    const auto id = static_cast<std::uint16_t>(i % 2 == 0 ? i / 2 % 64 : random.below(65'536));
    const auto datagram = make_datagram(random_headers(random, Opcode::kRcWriteMiddle, pad_of(payload_bytes)),
                                        random_bytes(random, payload_bytes), flow, id);
    const std::uint32_t stored = load_le32(datagram.data() + datagram.size() - kIcrcBytes);
    const std::uint32_t difference = stored ^ icrc_finish(register_after(datagram, flow, 0));
    ASSERT_EQ(icrc_solve_id(difference, datagram.size()), id);
  }
}

TEST(IcrcId, SolverRefusesDamage) {
  // A burst of up to 16 bits elsewhere never looks like an identification at these distances only by chance: expect
  // about 1 in 65,536 of random damage, and none of single flipped bits.
  Random random(9);
  const Flow flow = random_flow(random);
  const auto good = make_datagram(random_headers(random, Opcode::kRcWriteOnly, 0), random_bytes(random, 256), flow, 0);
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    if (bit / 8 == 4) continue;  // FECN, BECN and reserved bits are not covered
    if (bit / 8 < 1) continue;   // another opcode has other headers
    auto damaged = good;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const std::uint32_t stored = load_le32(damaged.data() + damaged.size() - kIcrcBytes);
    ASSERT_EQ(icrc_solve_id(stored ^ icrc_finish(register_after(damaged, flow, 0)), damaged.size()), -1) << bit;
  }
  int accepted = 0;
  for (int i = 0; i < 200'000; ++i) {
    accepted += icrc_solve_id(static_cast<std::uint32_t>(random.next()), 300) >= 0 ? 1 : 0;
  }
  EXPECT_LT(accepted, 20);  // 3 expected
  EXPECT_EQ(icrc_solve_id(0, 3), -1);
  EXPECT_EQ(icrc_solve_id(0, 300), 0);
}

}  // namespace
}  // namespace tensorwire::wire
