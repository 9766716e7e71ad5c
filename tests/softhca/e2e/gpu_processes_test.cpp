// Memory of GPUs over the same-host link between two processes, where the one cannot reach the other's GPU, nor the
// kernel either: what comes from a GPU goes through the ring, what is for one is pulled by way of a buffer.
#include <gtest/gtest.h>

#include "gpu_end.hpp"
#include "local_pair.hpp"

namespace tensorwire::softhca::testing {
namespace {

/// Writes what arrives in its GPU at offset x back from there to the peer's GPU at offset x.
int echo_from_gpu(SharedDesk& desk, std::uint32_t ipv4) {
  try {
    GpuEnd self{ipv4, {}, patient()};
    desk->child = self.end.address();
    desk->child.buffer = self.device.address;
    desk->child.rkey = self.device.key;
    desk->child_there = 1;
    wait_for(desk->parent_there);
    if (self.end.connect(desk->parent) != 0 || self.end.post_receives(64) != 0) return 2;
    desk->child_there = 2;
    const Place peer{desk->parent.buffer, desk->parent.rkey, {}};
    for (;;) {
      const auto completion = self.end.next(30 * kSecond);
      if (!completion || completion->status != WcStatus::kSuccess) return 3;
      if (completion->opcode != WcOpcode::kRecvWithImm) continue;
      const std::uint32_t at = completion->immediate;
      if (self.end.post_receives(1) != 0 ||
          self.post(transport::WrOpcode::kWriteImm, {part(self.device, at, completion->byte_len)}, peer, at, 0, at) !=
              0)
        return 4;
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "child: %s\n", e.what());
    return 1;
  }
}

TEST(GpuProcesses, FromGpuToGpuAndBack) {
  SharedDesk desk;
  const std::uint32_t child_address = test_address(1);
  ChildProcess child{[&] { return echo_from_gpu(desk, child_address); }};
  wait_for(desk->child_there);
  Endpoint::Settings settings = patient();
  settings.bytes = GpuEnd::kGpuBytes;
  GpuEnd self{test_address(0), {}, settings};
  desk->parent = self.end.address();
  desk->parent.buffer = self.device.address;
  desk->parent.rkey = self.device.key;
  desk->parent_there = 1;
  ASSERT_EQ(self.end.connect(desk->child), 0);
  for (int i = 0; i < 5000 && desk->child_there != 2; ++i) std::this_thread::sleep_for(1ms);
  ASSERT_EQ(desk->child_there, 2);
  ASSERT_EQ(self.end.hca->link_description(self.end.qp), "same-host link");

  const Place peer{desk->child.buffer, desk->child.rkey, {}};
  for (const Place* const from : {&self.device, &self.host}) {
    for (const std::uint32_t bytes : {1U, 4096U, 4097U, 100'001U, 1'300'000U}) {
      SCOPED_TRACE(bytes);
      fill(from->bytes, bytes);
      const std::vector<std::byte> sent(from->bytes.begin() + 9, from->bytes.begin() + 9 + bytes);
      ASSERT_EQ(self.post_receive({}), 0);
      ASSERT_EQ(self.post(transport::WrOpcode::kWriteImm, {part(*from, 9, bytes)}, peer, 17, 0, 17), 0);
      for (int i = 0; i < 2; ++i) ASSERT_EQ(self.next_status(), WcStatus::kSuccess);  // ours, and the echo
      EXPECT_TRUE(same(self.device.bytes.subspan(17, bytes), sent));
    }
  }
  EXPECT_EQ(self.end.counter("tx_sends"), 0U) << "not a datagram was needed";
  EXPECT_GT(self.end.counter("local_rx_inline_bytes"), 2'000'000U) << "from a GPU";
  EXPECT_EQ(self.end.counter("local_rx_pulled_bytes"), 0U);
  EXPECT_EQ(self.end.counter("retransmitted_packets"), 0U);
}

}  // namespace
}  // namespace tensorwire::softhca::testing
