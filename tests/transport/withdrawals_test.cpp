// What a queue pair takes back is counted when it fails, is reset or destroyed, and at no other time.
#include "transport/withdrawals.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <tuple>

#include "world.hpp"

namespace tensorwire::transport::test {
namespace {

class WithdrawalsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    engine_.count_withdrawals(counts_.get());
    std::tie(end_, peer_) = world_.connect(0, 1);
    qpn_ = end_.qp->qpn();
    before_ = counts_->of(qpn_);
  }
  void move_to(QpState state) {
    QpAttr attr;
    attr.state = state;
    ASSERT_EQ(engine_.modify_qp(*end_.qp, attr, kAttrState, 0), 0);
  }
  [[nodiscard]] std::uint64_t taken_back() const { return counts_->of(qpn_) - before_; }

  World world_;
  Engine& engine_ = world_.hosts[0]->engine;
  const std::unique_ptr<Withdrawals> counts_ = std::make_unique<Withdrawals>();
  End end_, peer_;
  std::uint64_t before_ = 0;
  std::uint32_t qpn_ = 0;
};

TEST_F(WithdrawalsTest, AFailureCountsOnce) {
  move_to(QpState::kErr);
  EXPECT_EQ(taken_back(), 1U);
  move_to(QpState::kErr);
  EXPECT_EQ(taken_back(), 1U);
}

TEST_F(WithdrawalsTest, AResetCounts) {
  move_to(QpState::kReset);
  EXPECT_EQ(taken_back(), 1U);
}

TEST_F(WithdrawalsTest, DestructionCounts) {
  engine_.destroy_qp(*end_.qp);
  EXPECT_EQ(taken_back(), 1U);
}

TEST_F(WithdrawalsTest, WhatIsDoneWasNotTakenBack) {
  Buffer buffer = world_.hosts[0]->buffer(8);
  Buffer target = world_.hosts[1]->buffer(8);
  ASSERT_EQ(peer_.receive(1, {target.sge(0, 8)}), 0);
  const Sge sge = buffer.sge(0, 8);
  ASSERT_EQ(end_.send(send_wr(1, {&sge, 1})), 0);
  world_.settle();
  ASSERT_EQ(end_.poll().size(), 1U);
  EXPECT_EQ(taken_back(), 0U);
}

/// A link may get around to a message after another one in its hands has failed their queue pair.
TEST_F(WithdrawalsTest, AMessageNamesTheCountOfWhenItWasGivenOut) {
  move_to(QpState::kReset);
  World::bring_up(end_, peer_, {});
  Buffer buffer = world_.hosts[0]->buffer(8);
  const Sge sge = buffer.sge(0, 8);
  ASSERT_EQ(end_.send(send_wr(1, {&sge, 1})), 0);
  std::array<TxDesc, 1> descs;
  ASSERT_EQ(engine_.next_tx(0, 100, descs), 1U);
  EXPECT_EQ(descs[0].withdrawals, before_ + 1);
}

TEST_F(WithdrawalsTest, NobodyHasToCount) {
  engine_.count_withdrawals(nullptr);
  move_to(QpState::kErr);
  EXPECT_EQ(taken_back(), 0U);
}

}  // namespace
}  // namespace tensorwire::transport::test
