// The exchanged address and the failure line.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "base/random.hpp"
#include "verbs/failure.hpp"
#include "verbs/queue_pair.hpp"
#include "verbs/roce_qp.hpp"

namespace tensorwire::verbs {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(QpAddress, RoundTrip) {
  Random random{3};
  for (int i = 0; i < 1000; ++i) {
    QpAddress address;
    for (std::uint8_t& b : address.gid.bytes) b = static_cast<std::uint8_t>(random.next());
    address.qpn = random.below(1U << 24);
    address.psn = random.below(1U << 24);
    address.mtu = static_cast<ibv_mtu>(1 + random.below(5));
    address.lid = static_cast<std::uint16_t>(random.next());
    const auto back = qp_address_from_bytes(to_bytes(address));
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, address);
  }
}

TEST(QpAddress, HasAFixedLayout) {
  QpAddress address{.gid = *parse_gid("10.1.2.3"), .qpn = 0x010203, .psn = 0x0a0b0c, .mtu = IBV_MTU_4096, .lid = 0};
  const auto bytes = to_bytes(address);
  const std::array<int, QpAddress::kBytes> expected{0, 0, 0, 0, 0, 0, 0, 0,    0,    0,    0xff, 0xff, 10, 1,
                                                    2, 3, 0, 1, 2, 3, 0, 0x0a, 0x0b, 0x0c, 5,    0,    0,  0};
  for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(std::to_integer<int>(bytes[i]), expected[i]) << i;
}

TEST(QpAddress, OutOfRangeIsRefused) {
  const auto good =
      to_bytes(QpAddress{.gid = *parse_gid("10.1.2.3"), .qpn = 1, .psn = 2, .mtu = IBV_MTU_1024, .lid = 0});
  ASSERT_TRUE(qp_address_from_bytes(good));
  for (const auto& [at, value] : {std::pair{16, 1}, {20, 1}, {24, 0}, {24, 6}, {25, 1}}) {
    auto bad = good;
    bad[static_cast<std::size_t>(at)] = static_cast<std::byte>(value);
    EXPECT_FALSE(qp_address_from_bytes(bad)) << at << " " << value;
  }
}

TEST(Connect, TrafficClassIsTheDscpShifted) {
  EXPECT_EQ(traffic_class_of(26), 104);
  EXPECT_EQ(traffic_class_of(0), 0);
  EXPECT_EQ(traffic_class_of(63), 252);
}

Endpoints some_ends() {
  Endpoints ends;
  ends.local_gid = *parse_gid("10.0.0.1");
  ends.local_qpn = 0x123;
  ends.remote_gid = *parse_gid("10.0.0.2");
  ends.remote_qpn = 0xabcdef;
  ends.peer_rank = 3;
  ends.peer_host = "gpu07";
  return ends;
}

TEST(Failure, OneLineHasAllThatIsNeeded) {
  ibv_wc completion{};
  completion.status = IBV_WC_RETRY_EXC_ERR;
  completion.vendor_err = 0x81;
  const Error error{explain_completion(completion, "RDMA WRITE of 131072 bytes (all-reduce 17, step 2)", some_ends())};
  const std::string line = error.what();
  for (const char* part :
       {"RDMA WRITE of 131072 bytes (all-reduce 17, step 2)", "rank 3 on gpu07", "::ffff:10.0.0.1", "0x000123",
        "::ffff:10.0.0.2", "0xabcdef", "DSCP 26", "RETRY_EXC_ERR", "vendor error 0x81", "does not answer", "ping"}) {
    EXPECT_HAS(line, part);
  }
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(Failure, EveryStatusHasTextCauseAndRemedy) {
  for (int status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_GENERAL_ERR; ++status) {
    // Reliable datagrams, memory windows and EE contexts do not occur on RC queue pairs.
    const auto code = static_cast<ibv_wc_status>(status);
    if (code == IBV_WC_LOC_EEC_OP_ERR || code == IBV_WC_MW_BIND_ERR || code == IBV_WC_LOC_RDD_VIOL_ERR ||
        code == IBV_WC_REM_INV_RD_REQ_ERR || code == IBV_WC_INV_EECN_ERR || code == IBV_WC_INV_EEC_STATE_ERR) {
      continue;
    }
    ibv_wc completion{};
    completion.status = code;
    const ErrorParts parts = explain_completion(completion, "write", {});
    EXPECT_HAS(parts.why, "_ERR)");
    EXPECT_FALSE(parts.remedy.empty()) << parts.why;
  }
  ibv_wc unknown{};
  unknown.status = static_cast<ibv_wc_status>(31);
  EXPECT_HAS(explain_completion(unknown, "write", {}).why, "completion status 31");
}

TEST(Failure, APostThatIsRefused) {
  EXPECT_HAS(explain_post(ENOMEM, "write", some_ends()).why, "send queue is full");
  EXPECT_HAS(explain_post(EINVAL, "write", some_ends()).what, "rank 3 on gpu07");
}

}  // namespace
}  // namespace tensorwire::verbs
