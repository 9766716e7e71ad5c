// Memory windows and SEND with invalidate between whole Hcas: over packets, over packets that get lost, and over the
// same-host link.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <thread>

#include "base/random.hpp"
#include "endpoint.hpp"

namespace tensorwire::softhca::testing {
namespace {

using transport::WcOpcode;
using transport::WcStatus;
using transport::WrOpcode;

enum class Over { kPackets, kLossyPackets, kSameHost };

HcaOptions options(Over over, std::uint64_t seed) {
  if (over == Over::kPackets) return packets_only();
  if (over == Over::kLossyPackets) return faulty("drop=2%,dup=2%,reorder=2%", seed);
  return {};
}

/// `b` owns a region that nobody may reach, and windows to it; `a` comes through them.
class WindowsOver : public ::testing::TestWithParam<Over> {
 protected:
  static constexpr std::uint32_t kBytes = 256 * 1024;

  void SetUp() override {
    ASSERT_EQ(a.connect(b.address()), 0);
    ASSERT_EQ(b.connect(a.address()), 0);
    const auto at = reinterpret_cast<std::uint64_t>(region.data());
    ASSERT_EQ(b.hca->register_memory(b.pd, at, region.size(), at,
                                     transport::kAccessLocalWrite | transport::kAccessWindowBind, lkey),
              0);
    ASSERT_EQ(b.hca->allocate_window(b.pd, transport::WindowType::k2, window), 0);
    if (GetParam() == Over::kSameHost) {
      ASSERT_EQ(a.hca->link_description(a.qp), "same-host link");
    }
  }
  void TearDown() override {
    EXPECT_EQ(b.hca->deallocate_window(window), 0);
    EXPECT_EQ(b.hca->deregister_memory(lkey), 0);
  }

  int bind(std::uint32_t key) {
    const transport::WindowBinding all{reinterpret_cast<std::uint64_t>(region.data()), region.size(), lkey,
                                       transport::kAccessRemote};
    transport::SendWr wr;
    wr.opcode = WrOpcode::kBindWindow;
    wr.rkey = key;
    wr.binding = &all;
    return b.hca->post_send(b.qp, wr, false);
  }
  /// What `a` must name to come through the window.
  [[nodiscard]] Address through(std::uint32_t key) const {
    Address there = b.address();
    there.buffer = reinterpret_cast<std::uint64_t>(region.data());
    there.rkey = key;
    return there;
  }
  int give_back(std::uint32_t key) {
    transport::SendWr wr;
    wr.opcode = WrOpcode::kSendInvalidate;
    wr.rkey = key;
    wr.fence = true;
    return a.hca->post_send(a.qp, wr, false);
  }
  static void expect(const Endpoint& of, WcOpcode opcode, WcStatus status = WcStatus::kSuccess) {
    const auto done = of.next(20 * kSecond);
    ASSERT_TRUE(done);
    ASSERT_EQ(done->status, status);
    if (status == WcStatus::kSuccess) {
      ASSERT_EQ(done->opcode, opcode);
    }
  }

  /// A NAK that gets lost is not sent again.
  void expect_refused() const {
    const auto done = a.next(20 * kSecond);
    ASSERT_TRUE(done);
    if (GetParam() == Over::kLossyPackets && done->status == WcStatus::kRetryExceeded) return;
    EXPECT_EQ(done->status, WcStatus::kRemoteAccessError);
  }

  Endpoint a{open_at(loopback_device(), test_address(0), options(GetParam(), 11))};
  Endpoint b{open_at(loopback_device(), test_address(1), options(GetParam(), 12))};
  std::vector<std::byte> region = std::vector<std::byte>(kBytes);
  std::uint32_t lkey = 0;
  std::uint32_t window = 0;
};

TEST_P(WindowsOver, LentUsedAndGivenBack) {
  Random random{1};
  for (std::uint32_t round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    const std::uint32_t key = (window & ~0xffU) | round % 3;
    const std::uint32_t bytes = 8 + random.below(kBytes - 8);
    for (std::byte& byte : std::span(a.memory).first(bytes)) byte = static_cast<std::byte>(random.next());
    ASSERT_EQ(b.post_receives(1), 0);
    ASSERT_EQ(bind(key), 0);
    ASSERT_NO_FATAL_FAILURE(expect(b, WcOpcode::kBindWindow));
    EXPECT_EQ(b.hca->deregister_memory(lkey), EBUSY);
    ASSERT_EQ(a.write(through(key), 0, bytes, 0), 0);
    ASSERT_EQ(give_back(key), 0);
    ASSERT_NO_FATAL_FAILURE(expect(a, WcOpcode::kWrite));
    ASSERT_NO_FATAL_FAILURE(expect(a, WcOpcode::kSend));
    const auto done = b.next(20 * kSecond);
    ASSERT_TRUE(done);
    ASSERT_EQ(done->status, WcStatus::kSuccess);
    ASSERT_EQ(done->flags, transport::kWcWithInvalidate);
    ASSERT_EQ(done->invalidated_key, key);
    ASSERT_TRUE(std::equal(region.begin(), region.begin() + bytes, a.memory.begin()));
  }
}

TEST_P(WindowsOver, ReadsBeforeAFencedInvalidateAreAnswered) {
  Random random{2};
  for (std::byte& byte : region) byte = static_cast<std::byte>(random.next());
  for (std::uint32_t round = 0; round < 10; ++round) {
    const std::uint32_t key = (window & ~0xffU) | round % 2;
    ASSERT_EQ(b.post_receives(1), 0);
    ASSERT_EQ(bind(key), 0);
    ASSERT_NO_FATAL_FAILURE(expect(b, WcOpcode::kBindWindow));
    std::ranges::fill(a.memory, std::byte{0});
    ASSERT_EQ(a.read(through(key), 0, kBytes, 1), 0);
    ASSERT_EQ(give_back(key), 0);
    ASSERT_NO_FATAL_FAILURE(expect(a, WcOpcode::kRead));
    ASSERT_TRUE(std::equal(region.begin(), region.end(), a.memory.begin()));
    ASSERT_NO_FATAL_FAILURE(expect(a, WcOpcode::kSend));
    ASSERT_NO_FATAL_FAILURE(expect(b, WcOpcode::kRecv));
  }
}

TEST_P(WindowsOver, WhatWasGivenBackIsClosed) {
  ASSERT_EQ(b.post_receives(1), 0);
  ASSERT_EQ(bind(window), 0);
  ASSERT_NO_FATAL_FAILURE(expect(b, WcOpcode::kBindWindow));
  ASSERT_EQ(give_back(window), 0);
  ASSERT_NO_FATAL_FAILURE(expect(a, WcOpcode::kSend));
  ASSERT_NO_FATAL_FAILURE(expect(b, WcOpcode::kRecv));
  ASSERT_EQ(a.write(through(window), 0, kBytes, 0), 0);
  expect_refused();
  EXPECT_TRUE(std::ranges::all_of(region, [](std::byte x) { return x == std::byte{0}; }));
}

TEST_P(WindowsOver, ARegionCannotBeGivenBack) {
  ASSERT_EQ(b.post_receives(1), 0);
  ASSERT_EQ(give_back(b.key), 0);
  ASSERT_NO_FATAL_FAILURE(expect(b, WcOpcode::kRecv, WcStatus::kRemoteInvalidRequestError));
  expect_refused();
}

std::string link_name(const ::testing::TestParamInfo<Over>& tested) {
  if (tested.param == Over::kPackets) return "Packets";
  return tested.param == Over::kLossyPackets ? "LossyPackets" : "SameHost";
}

INSTANTIATE_TEST_SUITE_P(Links, WindowsOver, ::testing::Values(Over::kPackets, Over::kLossyPackets, Over::kSameHost),
                         link_name);

}  // namespace
}  // namespace tensorwire::softhca::testing
