// Both ends of a channel in one process, between two engines, step by step. Everything else that can happen to a
// channel is simulated in ring_faults.
#include "softhca/local_channel.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <tuple>

#include "transport/withdrawals.hpp"
#include "transport/world.hpp"

namespace tensorwire::softhca {
namespace {

using transport::PathId;
using transport::QpState;
using transport::WcStatus;
using transport::test::Buffer;
using transport::test::World;

constexpr std::size_t kBytes = 10'000;

class LocalChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    sender_.engine.count_withdrawals(withdrawals_.get());
    auto [a, b] = world_.connect(0, 1, {}, {64, 64, 4, 4, 256}, path_);
    a_ = a;
    b_ = b;
    transport::test::fill(source_.bytes, 1);
  }

  void send() {
    const transport::Sge sge = source_.sge(0, kBytes);
    ASSERT_EQ(a_.send(transport::test::send_wr(1, {&sge, 1})), 0);
    std::array<transport::TxDesc, 4> descs;
    const std::size_t count = a_.host->engine.next_tx(0, kBytes, descs);
    ASSERT_EQ(count, 1U);
    out_.send(a_.host->engine, {descs.data(), count}, 512, 0, counters_);
  }
  std::size_t receive(std::uint64_t pull_bytes) {
    return in_.receive(b_.host->engine, 0, counters_, {.pull_bytes = pull_bytes});
  }

  World world_;
  transport::test::Host& sender_ = *world_.hosts[0];
  transport::test::Host& receiver_ = *world_.hosts[1];
  PathId path_ = sender_.engine.create_path({.whole_messages = true});
  transport::test::End a_, b_;
  Buffer source_ = sender_.buffer(kBytes);
  Buffer first_ = receiver_.buffer(kBytes);
  Buffer second_ = receiver_.buffer(kBytes);
  LocalLinkCounters counters_;
  std::uint64_t probe_ = 7;
  const std::unique_ptr<transport::Withdrawals> withdrawals_ = std::make_unique<transport::Withdrawals>();
  RingMemory memory_ = RingMemory::create();
  ChannelFds fds_ = ChannelFds::make();
  IncomingChannel in_{memory_, fds_.duplicate(),
                      PullSource{.pid = static_cast<std::uint32_t>(::getpid()),
                                 .probe = {reinterpret_cast<std::uint64_t>(&probe_), probe_},
                                 .withdrawals = reinterpret_cast<std::uint64_t>(withdrawals_.get())},
                      sender_.gid};
  OutgoingChannel out_{memory_, std::move(fds_)};
};

TEST_F(LocalChannelTest, ALongMessageIsPulledInSteps) {
  ASSERT_EQ(b_.receive(5, {first_.sge(0, kBytes)}), 0);
  send();
  for (int i = 0; i < 9; ++i) EXPECT_EQ(receive(1'000), 0U);
  EXPECT_TRUE(b_.poll().empty());
  EXPECT_EQ(receive(1'000), 1U);
  ASSERT_EQ(b_.poll().size(), 1U);
  EXPECT_EQ(first_.bytes, source_.bytes);
}

/// Many programs begin every life of a queue pair with the same PSN. A message that was pulled half for an earlier life
/// is pulled whole for this one.
TEST_F(LocalChannelTest, AQueuePairThatComesBackGetsAWholeMessage) {
  ASSERT_EQ(b_.receive(5, {first_.sge(0, kBytes)}), 0);
  send();
  EXPECT_EQ(receive(4'000), 0U);
  ASSERT_EQ(receiver_.engine.modify_qp(*b_.qp, {}, transport::kAttrState, 0), 0);
  World::bring_up(b_, a_, {});
  ASSERT_EQ(b_.receive(6, {second_.sge(0, kBytes)}), 0);
  EXPECT_EQ(receive(1U << 20), 1U);
  const auto arrived = b_.poll();
  ASSERT_EQ(arrived.size(), 1U);
  EXPECT_EQ(arrived[0].status, WcStatus::kSuccess);
  EXPECT_EQ(second_.bytes, source_.bytes);
}

/// What is left of a message whose queue pair is gone is not pulled any more.
TEST_F(LocalChannelTest, AQueuePairThatIsGoneEndsAPull) {
  ASSERT_EQ(b_.receive(5, {first_.sge(0, kBytes)}), 0);
  send();
  EXPECT_EQ(receive(4'000), 0U);
  receiver_.engine.destroy_qp(*b_.qp);
  EXPECT_EQ(receive(1U << 20), 1U);
  EXPECT_EQ(counters_.rx_pulled_bytes, 4'000U);
  EXPECT_FALSE(in_.finished());
}

/// Flushed or forgotten by its sender, whose memory may hold something else by now, a message does not complete; what
/// the queue pair sends in its next life does.
class Withdrawn : public LocalChannelTest, public ::testing::WithParamInterface<QpState> {};

TEST_P(Withdrawn, AMessageThatItsSenderTookBackDoesNotComplete) {
  ASSERT_EQ(b_.receive(5, {first_.sge(0, kBytes)}), 0);
  send();
  EXPECT_EQ(receive(4'000), 0U);
  transport::QpAttr attr;
  attr.state = GetParam();
  ASSERT_EQ(sender_.engine.modify_qp(*a_.qp, attr, transport::kAttrState, 0), 0);
  transport::test::fill(source_.bytes, 2);
  EXPECT_EQ(receive(1U << 20), 1U);
  EXPECT_TRUE(b_.poll().empty());
  EXPECT_EQ(counters_.rx_withdrawn, 1U);

  attr.state = QpState::kReset;
  for (transport::test::End* end : {&a_, &b_})
    ASSERT_EQ(end->host->engine.modify_qp(*end->qp, attr, transport::kAttrState, 0), 0);
  std::ignore = a_.poll();
  World::bring_up(a_, b_, {}, path_);
  World::bring_up(b_, a_, {});
  ASSERT_EQ(b_.receive(6, {second_.sge(0, kBytes)}), 0);
  send();
  EXPECT_EQ(receive(1U << 20), 1U);
  const auto arrived = b_.poll();
  ASSERT_EQ(arrived.size(), 1U);
  EXPECT_EQ(arrived[0].status, WcStatus::kSuccess);
  EXPECT_EQ(second_.bytes, source_.bytes);
}
INSTANTIATE_TEST_SUITE_P(By, Withdrawn, ::testing::Values(QpState::kErr, QpState::kReset));

TEST_F(LocalChannelTest, AMessageOfADestroyedQueuePairDoesNotComplete) {
  ASSERT_EQ(b_.receive(5, {first_.sge(0, kBytes)}), 0);
  send();
  sender_.engine.destroy_qp(*a_.qp);
  EXPECT_EQ(receive(1U << 20), 1U);
  EXPECT_TRUE(b_.poll().empty());
  EXPECT_FALSE(in_.finished());
}

}  // namespace
}  // namespace tensorwire::softhca
