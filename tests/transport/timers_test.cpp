// The timer heap against a plain model.
#include "transport/timers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "transport/qp.hpp"
#include "transport/timing.hpp"
#include "world.hpp"

namespace tensorwire::transport::test {
namespace {

TEST(Timers, AgreesWithAModelUnderRandomUse) {
  World world(1);
  std::vector<Qp*> qps;
  for (int i = 0; i < 50; ++i) qps.push_back(static_cast<Qp*>(&world.create_qp(*world.hosts[0], {1, 1, 1, 1, 0})));
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    Timers timers{&QpLinks::timer};
    timers.reserve(qps.size());
    std::map<Qp*, Ps> model;
    for (int i = 0; i < 2000; ++i) {
      Qp* qp = qps[random.below(50)];
      switch (random.below(4)) {
        case 0:
          timers.cancel(*qp);
          model.erase(qp);
          break;
        case 1: {
          const Ps now = random.below(1000);
          if (Qp* due = timers.pop_due(now); due != nullptr) {
            ASSERT_EQ(model.count(due), 1U);
            ASSERT_LE(model[due], now);
            model.erase(due);
          }
          break;
        }
        default:
          model[qp] = random.below(1000);
          timers.set(*qp, model[qp]);
      }
      Ps earliest = kNever;
      for (const auto& [other, deadline] : model) earliest = std::min(earliest, deadline);
      ASSERT_EQ(timers.next_deadline(), earliest);
    }
    for (Qp* qp : qps) timers.cancel(*qp);
    ASSERT_EQ(timers.next_deadline(), kNever);
  }
}

TEST(Timing, CodesOfTheSpecification) {
  EXPECT_EQ(ack_timeout(0), kNever);
  EXPECT_EQ(ack_timeout(1), 8'192 * kNanosecond);
  EXPECT_EQ(ack_timeout(14), 67'108'864 * kNanosecond);
  EXPECT_EQ(rnr_wait(0), 655'360 * kMicrosecond);
  EXPECT_EQ(rnr_wait(1), 10 * kMicrosecond);
  EXPECT_EQ(rnr_wait(31), 491'520 * kMicrosecond);
  for (std::uint8_t code = 2; code < 32; ++code) EXPECT_GT(rnr_wait(code), rnr_wait(code - 1));
}

}  // namespace
}  // namespace tensorwire::transport::test
