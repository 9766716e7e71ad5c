// The wait policy follows from cores and ranks.
#include "comm/wait_policy.hpp"

#include <gtest/gtest.h>

namespace tensorwire::comm {
namespace {

TEST(WaitPolicy, NobodyBurnsACoreThatAPeerNeeds) {
  EXPECT_EQ(choose_wait_policy(16, 2), WaitPolicy::kSpin);
  EXPECT_EQ(choose_wait_policy(2, 2), WaitPolicy::kSpinThenYield);
  EXPECT_EQ(choose_wait_policy(2, 4), WaitPolicy::kBlock);
  EXPECT_EQ(choose_wait_policy(1, 2), WaitPolicy::kBlock);
  EXPECT_GE(usable_cores(), 1U);
}

}  // namespace
}  // namespace tensorwire::comm
