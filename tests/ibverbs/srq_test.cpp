// Shared receive queues: verbs, limit and last-request events.
#include <array>
#include <thread>

#include "ibverbs/async_events.hpp"
#include "ibverbs/verbs_fixture.hpp"

namespace tensorwire::ibverbs::test {
namespace {

class SrqTest : public PairTest {
 protected:
  void SetUp() override {
    VerbsTest::SetUp();
    ibv_srq_init_attr wanted{};
    wanted.srq_context = this;
    wanted.attr.max_wr = 8;
    wanted.attr.max_sge = 2;
    srq = owned(ibv_create_srq(pd(), &wanted), ibv_destroy_srq);
    ASSERT_NE(srq, nullptr);
    EXPECT_GE(wanted.attr.max_wr, 8U);
    // The base makes both queue pairs on it.
    for (Side* side : {&left, &right}) {
      side->mr = register_bytes(side->buffer);
      side->cq = make_cq();
      side->qp = make_qp(side->cq.get());
      ASSERT_NE(side->qp, nullptr);
    }
    connect(left.qp.get(), right.qp.get());
    connect(right.qp.get(), left.qp.get());
  }
  void TearDown() override {
    left.qp.reset();
    right.qp.reset();
  }

  [[nodiscard]] Owned<ibv_qp> make_qp(ibv_cq* cq) override {
    ibv_qp_init_attr attributes = rc_attributes(cq, cq);
    attributes.srq = srq.get();
    Owned<ibv_qp> qp = owned(ibv_create_qp(pd(), &attributes), ibv_destroy_qp);
    EXPECT_EQ(attributes.cap.max_recv_wr, 0U);
    return qp;
  }

  [[nodiscard]] int post_shared(std::uint64_t wr_id) {
    ibv_sge into = right.sge(wr_id * 1024, 1024);
    ibv_recv_wr receive{.wr_id = wr_id, .next = nullptr, .sg_list = &into, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    const int result = ibv_post_srq_recv(srq.get(), &receive, &bad);
    EXPECT_EQ(bad, result == 0 ? nullptr : &receive);
    return result;
  }
  void send(Side& side, std::size_t bytes = 64) {
    ibv_sge from = side.sge(32768, bytes);
    ibv_send_wr wr = request(IBV_WR_SEND, 1);
    wr.sg_list = &from;
    wr.num_sge = 1;
    ASSERT_EQ(post(side.qp.get(), wr), 0);
    const auto sent = wait_completion(side.cq.get());
    ASSERT_TRUE(sent);
    EXPECT_EQ(sent->opcode, IBV_WC_SEND);
  }

  Owned<ibv_srq> srq;
};

TEST_F(SrqTest, BothQueuePairsTakeFromIt) {
  ASSERT_EQ(post_shared(3), 0);
  ASSERT_EQ(post_shared(4), 0);
  send(left);
  const auto at_right = wait_completion(right.cq.get());
  ASSERT_TRUE(at_right);
  EXPECT_EQ(at_right->wr_id, 3U);
  EXPECT_EQ(at_right->qp_num, right.qp->qp_num);
  send(right);
  const auto at_left = wait_completion(left.cq.get());
  ASSERT_TRUE(at_left);
  EXPECT_EQ(at_left->wr_id, 4U);
  EXPECT_EQ(at_left->qp_num, left.qp->qp_num);
}

TEST_F(SrqTest, QueuesAnswerWhatTheyAre) {
  ibv_srq_attr attr{};
  ASSERT_EQ(ibv_query_srq(srq.get(), &attr), 0);
  EXPECT_EQ(attr.max_wr, 8U);
  EXPECT_EQ(attr.max_sge, 2U);
  EXPECT_EQ(attr.srq_limit, 0U);
  for (std::uint64_t i = 0; i < 8; ++i) ASSERT_EQ(post_shared(i), 0);
  EXPECT_EQ(post_shared(8), ENOMEM);
  attr.srq_limit = 5;
  ASSERT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT), 0);
  ASSERT_EQ(ibv_query_srq(srq.get(), &attr), 0);
  EXPECT_EQ(attr.srq_limit, 5U);
  attr.srq_limit = 9;
  EXPECT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT), EINVAL);
  EXPECT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_MAX_WR), EOPNOTSUPP);
  EXPECT_EQ(ibv_modify_srq(srq.get(), &attr, 1 << 20), EINVAL);
  ibv_qp_attr qp_attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(left.qp.get(), &qp_attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(init.srq, srq.get());
  ibv_recv_wr receive{};
  EXPECT_EQ(post(left.qp.get(), receive), EINVAL);  // buffers go to the shared queue
}

TEST_F(SrqTest, LimitIsToldOnce) {
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(post_shared(i), 0);
  ibv_srq_attr attr{};
  attr.srq_limit = 4;
  ASSERT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT), 0);
  EXPECT_FALSE(readable(context()->async_fd, std::chrono::milliseconds(20)));
  send(left);
  send(left);
  auto event = next_event(context(), IBV_EVENT_SRQ_LIMIT_REACHED);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->element.srq, srq.get());
  EXPECT_EQ(event->element.srq->srq_context, this);
  ibv_ack_async_event(&*event);
  EXPECT_FALSE(readable(context()->async_fd, std::chrono::milliseconds(20)));
  ASSERT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT), 0);  // reached already
  event = next_event(context(), IBV_EVENT_SRQ_LIMIT_REACHED);
  ASSERT_TRUE(event);
  ibv_ack_async_event(&*event);
}

TEST_F(SrqTest, LastRequestIsToldWhenAQueuePairEnds) {
  ASSERT_EQ(post_shared(0), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(right.qp.get(), &attr, IBV_QP_STATE), 0);
  auto event = next_event(context(), IBV_EVENT_QP_LAST_WQE_REACHED);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->element.qp, right.qp.get());
  ibv_ack_async_event(&*event);
  ibv_wc none{};
  EXPECT_EQ(ibv_poll_cq(right.cq.get(), 1, &none), 0);  // nothing of the shared queue is flushed
}

TEST_F(SrqTest, InUseItCannotBeDestroyed) { EXPECT_EQ(ibv_destroy_srq(srq.get()), EBUSY); }

TEST_F(SrqTest, DestroyDropsUnreadEventsAndWaitsForReadOnes) {
  left.qp.reset();
  right.qp.reset();
  ibv_srq_attr attr{};
  attr.srq_limit = 1;
  ASSERT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT), 0);
  auto event = next_event(context(), IBV_EVENT_SRQ_LIMIT_REACHED);
  ASSERT_TRUE(event);
  ASSERT_EQ(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT), 0);
  ASSERT_TRUE(readable(context()->async_fd, std::chrono::seconds(5)));
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ibv_ack_async_event(&*event);
  });
  srq.reset();
  later.join();
  EXPECT_FALSE(readable(context()->async_fd, std::chrono::milliseconds(0)));
}

TEST_F(SrqTest, CreationRefusesBadLimits) {
  for (const auto& [max_wr, max_sge] : {std::pair{0U, 1U}, {1U << 20, 1U}, {4U, 100U}}) {
    ibv_srq_init_attr wanted{};
    wanted.attr.max_wr = max_wr;
    wanted.attr.max_sge = max_sge;
    errno = 0;
    EXPECT_EQ(ibv_create_srq(pd(), &wanted), nullptr);
    EXPECT_EQ(errno, EINVAL);
  }
}

// Several threads post while messages arrive: verbs are thread-safe.
TEST_F(SrqTest, ThreadsMayPostTogether) {
  constexpr int kThreads = 3;
  constexpr int kMessages = 300;
  std::atomic<int> posted{0};
  std::vector<std::thread> posters;
  for (int t = 0; t < kThreads; ++t) {
    posters.emplace_back([&] {
      while (posted.load() < kMessages) {
        ibv_recv_wr receive{.wr_id = 1, .next = nullptr, .sg_list = nullptr, .num_sge = 0};
        ibv_recv_wr* bad = nullptr;
        if (ibv_post_srq_recv(srq.get(), &receive, &bad) == 0) {
          ++posted;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  int received = 0;
  for (int i = 0; i < kMessages; ++i) {
    send(left, 0);
    const auto wc = wait_completion(right.cq.get());
    if (wc && wc->status == IBV_WC_SUCCESS) ++received;
  }
  for (std::thread& poster : posters) poster.join();
  EXPECT_EQ(received, kMessages);
}

}  // namespace
}  // namespace tensorwire::ibverbs::test
