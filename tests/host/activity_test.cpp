// What two looks at a host's counters say, by the names of each driver.
#include "host/activity.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "host/test_host.hpp"

namespace tensorwire::host::test {
namespace {

constexpr Ps kElapsed = 2 * kSecond;

using Values = std::map<std::string, std::uint64_t>;

struct Moved {
  Values statistics = {};
  std::vector<std::pair<std::string, std::uint64_t>> hw_counters = {};
};

/// The first port's activity while `moved` was added to its counters, which were 7 before.
PortActivity while_moving(Kind kind, const Moved& moved) {
  TestHost before{kind};
  TestHost after{kind};
  Values was;
  Values is;
  for (const auto& [name, value] : moved.statistics) {
    was[name] = 7;
    is[name] = 7 + value;
  }
  before.statistics(before.nic(), was);
  after.statistics(after.nic(), is);
  for (const auto& [name, value] : moved.hw_counters) {
    before.hw_counter(before.nic(), name, 7);
    after.hw_counter(after.nic(), name, 7 + value);
  }
  const auto ports = activity_between(before.facts(), after.facts(), kElapsed);
  EXPECT_EQ(ports.size(), before.nics().size());
  return ports.empty() ? PortActivity{} : ports.front();
}

bool says(const PortActivity& port, std::string_view words) {
  return std::ranges::any_of(port.verdicts,
                             [&](const std::string& verdict) { return verdict.find(words) != std::string::npos; });
}

TEST(Activity, DataInTheLosslessPriorityIsProvenToKeepItsDscp) {
  const PortActivity port = while_moving(
      Kind::kMlx5,
      {.statistics = {{"tx_prio3_bytes", 2'000'000'000}, {"rx_prio3_bytes", 1'900'000'000}, {"rx_prio0_bytes", 1000}}});
  EXPECT_EQ(port.priorities[3].sent_bytes, 2'000'000'000U);
  EXPECT_EQ(port.priorities[0].received_bytes, 1000U);
  EXPECT_TRUE(says(port, "sends in priority 3, which is lossless here"));
  EXPECT_TRUE(says(port, "survives the way to this host (proven)"));
}

TEST(Activity, DataInPriority0IsSaidToBeUnprotected) {
  const PortActivity port =
      while_moving(Kind::kMlx5, {.statistics = {{"tx_prio0_bytes", 2'000'000'000}, {"rx_prio0_bytes", 2'000'000'000}}});
  EXPECT_TRUE(says(port, "sends in priority 0, which is NOT lossless here"));
  EXPECT_FALSE(says(port, "proven"));
}

TEST(Activity, AFewBytesOrAMixtureProveNothing) {
  EXPECT_TRUE(while_moving(Kind::kMlx5, {.statistics = {{"tx_prio3_bytes", 900'000}}}).verdicts.empty());
  const Moved mixed{.statistics = {{"tx_prio3_bytes", 50'000'000}, {"tx_prio0_bytes", 50'000'000}}};
  EXPECT_TRUE(while_moving(Kind::kMlx5, mixed).verdicts.empty());
}

TEST(Activity, WhoPausesWhom) {
  const PortActivity stopped =
      while_moving(Kind::kMlx5, {.statistics = {{"rx_prio3_pause", 812}, {"rx_prio3_pause_duration", 820'000}}});
  EXPECT_TRUE(says(stopped, "is paused in priority 3: its switch port sent 812 pauses, 41 % of the time"));
  EXPECT_FALSE(says(stopped, "pauses its switch port"));
  const PortActivity slow = while_moving(Kind::kBroadcom, {.statistics = {{"tx_pfc_ena_frames_pri3", 5}}});
  EXPECT_TRUE(says(slow, "pauses its switch port in priority 3: 5 times"));
  EXPECT_TRUE(says(while_moving(Kind::kIntel, {.statistics = {{"rx_priority_3_xoff.nic", 9}}}), "sent 9 pauses"));
}

TEST(Activity, MarksWithoutAnswers) {
  const PortActivity off = while_moving(
      Kind::kMlx5, {.hw_counters = {{"np_ecn_marked_roce_packets", 40}, {"np_cnp_sent", 0}, {"rp_cnp_ignored", 3}}});
  EXPECT_TRUE(says(off, "its notification point is off"));
  EXPECT_TRUE(says(off, "its reaction point is off"));
  const Moved answered{.hw_counters = {{"np_ecn_marked_roce_packets", 40}, {"np_cnp_sent", 40}}};
  EXPECT_TRUE(while_moving(Kind::kMlx5, answered).verdicts.empty());
  EXPECT_EQ(while_moving(Kind::kMlx5, answered).events.size(), 2U);
}

TEST(Activity, ACounterThatIsNotThereOrWasSetBackIsNotZero) {
  EXPECT_EQ(while_moving(Kind::kMlx5, {.statistics = {{"tx_prio3_bytes", 1}}}).priorities[3].paused_us, std::nullopt);
  TestHost before{Kind::kMlx5};
  TestHost after{Kind::kMlx5};
  before.statistics(before.nic(), {{"tx_prio3_bytes", 100}});
  after.statistics(after.nic(), {{"tx_prio3_bytes", 3}});
  EXPECT_EQ(activity_between(before.facts(), after.facts(), kElapsed)[0].priorities[3].sent_bytes, std::nullopt);
}

}  // namespace
}  // namespace tensorwire::host::test
