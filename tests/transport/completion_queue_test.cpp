// The completion ring: order, overrun, arming (also against a concurrent producer), purge.
#include "transport/completion_queue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

namespace tensorwire::transport::test {
namespace {

struct CountingListener final : CompletionListener {
  std::atomic<int> events{0};
  void on_completion_event(CompletionQueue&) noexcept override { events.fetch_add(1); }
};

Completion completion(std::uint64_t wr_id, std::uint32_t qpn = 1, WcStatus status = WcStatus::kSuccess) {
  Completion made;
  made.wr_id = wr_id;
  made.qp_num = qpn;
  made.status = status;
  return made;
}

TEST(CompletionQueue, KeepsOrderAcrossTheWrap) {
  CompletionQueue cq(5, nullptr);
  std::uint64_t pushed = 0;
  std::uint64_t polled = 0;
  std::array<Completion, 3> out;
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 4; ++i) cq.push(completion(pushed++), false);
    EXPECT_EQ(cq.size(), 4U);
    for (std::size_t n = cq.poll(out); n != 0; n = cq.poll(out))
      for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(out[i].wr_id, polled++);
  }
  EXPECT_EQ(polled, pushed);
  EXPECT_FALSE(cq.overrun());
}

TEST(CompletionQueue, OverrunIsSeenAndKeepsTheOldest) {
  CompletionQueue cq(3, nullptr);
  for (int i = 0; i < 4; ++i) cq.push(completion(i), false);
  EXPECT_TRUE(cq.overrun());
  std::array<Completion, 8> out;
  ASSERT_EQ(cq.poll(out), 3U);
  EXPECT_EQ(out[2].wr_id, 2U);
}

TEST(CompletionQueue, ArmedOnceForTheNext) {
  CountingListener listener;
  CompletionQueue cq(16, &listener);
  cq.push(completion(1), true);
  EXPECT_EQ(listener.events, 0);
  cq.arm(false);
  EXPECT_EQ(listener.events, 0);  // what was there before does not count
  cq.push(completion(2), false);
  cq.push(completion(3), false);
  EXPECT_EQ(listener.events, 1);
}

TEST(CompletionQueue, SolicitedArmingWaitsForSolicitedOrFailed) {
  CountingListener listener;
  CompletionQueue cq(16, &listener);
  cq.arm(true);
  cq.push(completion(1), false);
  EXPECT_EQ(listener.events, 0);
  cq.push(completion(2), true);
  EXPECT_EQ(listener.events, 1);
  cq.arm(true);
  cq.push(completion(3, 1, WcStatus::kFlushError), false);
  EXPECT_EQ(listener.events, 2);
  cq.arm(false);
  cq.arm(true);  // does not weaken the arming for any
  cq.push(completion(4), false);
  EXPECT_EQ(listener.events, 3);
}

TEST(CompletionQueue, PurgeDropsOneQueuePairOnly) {
  CompletionQueue cq(8, nullptr);
  std::array<Completion, 8> out;
  for (int i = 0; i < 6; ++i) cq.push(completion(i), false);
  ASSERT_EQ(cq.poll(out), 6U);
  for (int i = 0; i < 8; ++i) cq.push(completion(i, i % 3), false);
  cq.purge(1);
  ASSERT_EQ(cq.poll(out), 5U);
  const std::array<std::uint64_t, 5> kept = {0, 2, 3, 5, 6};
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(out[i].wr_id, kept[i]);
}

// A consumer that arms, polls once more and then sleeps until the event must never sleep on a completion.
TEST(CompletionQueue, NoWakeUpIsLostToAConcurrentProducer) {
  CountingListener listener;
  CompletionQueue cq(64, &listener);
  constexpr int kTotal = 4'000;
  std::thread producer([&cq] {
    for (int i = 0; i < kTotal;) {
      if (cq.size() < cq.capacity()) cq.push(completion(i++), false);
    }
  });
  std::array<Completion, 16> out;
  std::uint64_t seen = 0;
  int events = 0;
  while (seen < kTotal) {
    cq.arm(false);
    std::size_t n = cq.poll(out);
    if (n == 0) {
      while (listener.events.load() == events) std::this_thread::yield();  // a lost wake-up hangs: the test times out
    }
    events = listener.events.load();
    for (; n != 0; n = cq.poll(out))
      for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(out[i].wr_id, seen++);
  }
  producer.join();
}

}  // namespace
}  // namespace tensorwire::transport::test
