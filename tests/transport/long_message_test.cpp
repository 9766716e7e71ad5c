// Messages of 2^31 bytes, the longest there are: lengths, PSNs around their circle, completions. No byte is moved: the
// regions have no memory behind them, and what would be copied is only looked at.
#include <gtest/gtest.h>

#include <array>

#include "world.hpp"

namespace tensorwire::transport::test {
namespace {

/// Carries packets without their bytes, and adds up what they would have brought, in the order of addresses.
struct LongFerry {
  Host& from;
  Host& to;
  std::uint64_t next_address = 0;  ///< of the next byte that is placed
  bool in_order = true;
  std::array<TxDesc, 64> batch;

  bool carry(std::uint32_t mtu) {
    const std::size_t n = from.engine.next_tx(0, 1 << 20, batch);
    for (std::size_t i = 0; i < n; ++i) {
      const TxDesc& d = batch[i];
      const RxVerdict verdict = to.engine.classify(d.headers, d.payload_bytes, {.address = from.gid, .mtu = mtu}, 0);
      for (std::size_t k = 0; k < verdict.piece_count; ++k) {
        in_order = in_order && verdict.pieces[k].address == next_address;
        next_address += verdict.pieces[k].length;
      }
      if (verdict.action != RxAction::kDrop) to.engine.commit(verdict, d.headers, d.payload_bytes, 0);
    }
    return n != 0;
  }
};

class LongMessage : public testing::TestWithParam<std::pair<WrOpcode, MtuCode>> {};

TEST_P(LongMessage, OfTwoGibibytesArrivesWhole) {
#ifdef TENSORWIRE_TSAN
  GTEST_SKIP() << "one thread, and minutes under ThreadSanitizer";
#endif
  const auto [opcode, mtu] = GetParam();
  World world;
  Connection c;
  c.mtu = mtu;
  auto [a, b] = world.connect(0, 1, c);
  constexpr std::uint64_t kBase = 1ULL << 40;
  const auto region = [](Host& host) {
    return host.engine.memory().add({kBase, kMaxMessageBytes, kBase, kEveryAccess, 0, host.pd, &host.memory}).key;
  };
  const std::uint32_t here = region(*a.host);
  const std::uint32_t there = region(*b.host);
  const std::array local = {Sge{kBase, kMaxMessageBytes, here}};
  const std::array remote = {Sge{kBase, kMaxMessageBytes, there}};
  ASSERT_EQ(b.qp->post_recv({7, remote}), 0);
  SendWr wr = write_wr(1, local, kBase, there);
  wr.opcode = opcode;
  ASSERT_EQ(a.send(wr), 0);
  LongFerry forth{*a.host, *b.host, kBase, true, {}};
  LongFerry back{*b.host, *a.host, kBase, true, {}};
  while (static_cast<int>(forth.carry(4096)) + static_cast<int>(back.carry(4096)) != 0) {
  }
  const LongFerry& bytes = opcode == WrOpcode::kRead ? back : forth;
  EXPECT_TRUE(bytes.in_order);
  EXPECT_EQ(bytes.next_address - kBase, kMaxMessageBytes);
  const auto done = a.poll();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].status, WcStatus::kSuccess);
  EXPECT_EQ(done[0].byte_len, kMaxMessageBytes);
  EXPECT_EQ(a.host->engine.next_deadline(), kNever);
  const auto received = b.poll();
  ASSERT_EQ(received.size(), opcode == WrOpcode::kSend ? 1U : 0U);
  for (const Completion& one : received) EXPECT_EQ(one.byte_len, kMaxMessageBytes);
}

// At an MTU of 256 such a message takes half the circle of PSNs.
INSTANTIATE_TEST_SUITE_P(Operations, LongMessage,
                         testing::Values(std::pair{WrOpcode::kWrite, MtuCode::k256},
                                         std::pair{WrOpcode::kSend, MtuCode::k4096},
                                         std::pair{WrOpcode::kRead, MtuCode::k256},
                                         std::pair{WrOpcode::kRead, MtuCode::k4096}));

}  // namespace
}  // namespace tensorwire::transport::test
