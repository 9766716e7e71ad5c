// Completion channels and asynchronous events.
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "ibverbs/async_events.hpp"
#include "ibverbs/verbs_fixture.hpp"

namespace tensorwire::ibverbs::test {
namespace {

using namespace std::chrono_literals;

void set_nonblocking(int fd) { ASSERT_EQ(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK), 0); }

/// The right side's completion queue hangs on a channel; the left side makes completions there.
class ChannelTest : public PairTest {
 protected:
  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    channel = owned(ibv_create_comp_channel(context()), ibv_destroy_comp_channel);
    ASSERT_NE(channel, nullptr);
    cq = owned(ibv_create_cq(context(), 32, &cookie, channel.get(), 0), ibv_destroy_cq);
    ASSERT_NE(cq, nullptr);
    receiver = PairTest::make_qp(cq.get());
    sender = PairTest::make_qp(left.cq.get());
    connect(receiver.get(), sender.get());
    connect(sender.get(), receiver.get());
  }
  void TearDown() override {
    receiver.reset();
    sender.reset();
  }

  void ping(bool solicited = false) {
    ibv_recv_wr receive{};
    ASSERT_EQ(post(receiver.get(), receive), 0);
    ibv_send_wr send = request(IBV_WR_SEND, 1);
    if (solicited) send.send_flags |= IBV_SEND_SOLICITED;
    ASSERT_EQ(post(sender.get(), send), 0);
    ASSERT_TRUE(wait_completion(left.cq.get()));
  }
  void expect_event() {
    ibv_cq* which = nullptr;
    void* user = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel.get(), &which, &user), 0);
    EXPECT_EQ(which, cq.get());
    EXPECT_EQ(user, &cookie);
  }

  int cookie = 0;
  Owned<ibv_comp_channel> channel;
  Owned<ibv_cq> cq;
  Owned<ibv_qp> receiver, sender;
};

TEST_F(ChannelTest, OneEventForOneRequest) {
  EXPECT_FALSE(readable(channel->fd, 0ms));
  ping();
  EXPECT_FALSE(readable(channel->fd, 20ms));  // nobody asked
  ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
  ping();
  EXPECT_TRUE(readable(channel->fd, 5s));
  expect_event();
  EXPECT_FALSE(readable(channel->fd, 0ms));
  ping();
  EXPECT_FALSE(readable(channel->fd, 20ms));  // asked once
  ibv_ack_cq_events(cq.get(), 1);
}

TEST_F(ChannelTest, SolicitedOnly) {
  ASSERT_EQ(ibv_req_notify_cq(cq.get(), 1), 0);
  ping();
  EXPECT_FALSE(readable(channel->fd, 20ms));
  ping(true);
  EXPECT_TRUE(readable(channel->fd, 5s));
  expect_event();
  ibv_ack_cq_events(cq.get(), 1);
}

TEST_F(ChannelTest, AnErrorNeedsNoSolicitation) {
  ibv_recv_wr receive{};
  ASSERT_EQ(post(receiver.get(), receive), 0);
  ASSERT_EQ(ibv_req_notify_cq(cq.get(), 1), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(receiver.get(), &attr, IBV_QP_STATE), 0);
  EXPECT_TRUE(readable(channel->fd, 5s));
  expect_event();
  ibv_ack_cq_events(cq.get(), 1);
}

TEST_F(ChannelTest, NonBlockingReadSaysAgain) {
  set_nonblocking(channel->fd);
  ibv_cq* which = nullptr;
  void* user = nullptr;
  errno = 0;
  EXPECT_EQ(ibv_get_cq_event(channel.get(), &which, &user), -1);
  EXPECT_EQ(errno, EAGAIN);
  ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
  ping();
  ASSERT_TRUE(readable(channel->fd, 5s));
  expect_event();
  EXPECT_EQ(ibv_get_cq_event(channel.get(), &which, &user), -1);
  ibv_ack_cq_events(cq.get(), 1);
}

TEST_F(ChannelTest, BlockingReadWaits) {
  ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
  std::thread later([&] {
    std::this_thread::sleep_for(30ms);
    ping();
  });
  expect_event();
  later.join();
  ibv_ack_cq_events(cq.get(), 1);
}

TEST_F(ChannelTest, EpollSeesIt) {
  const int epoll = ::epoll_create1(0);
  epoll_event wanted{.events = EPOLLIN, .data = {.u32 = 5}};
  ASSERT_EQ(::epoll_ctl(epoll, EPOLL_CTL_ADD, channel->fd, &wanted), 0);
  ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
  ping();
  epoll_event found{};
  EXPECT_EQ(::epoll_wait(epoll, &found, 1, 5000), 1);
  expect_event();
  EXPECT_EQ(::epoll_wait(epoll, &found, 1, 0), 0);
  ::close(epoll);
  ibv_ack_cq_events(cq.get(), 1);
}

TEST_F(ChannelTest, SeveralUnreadEventsOfSeveralQueues) {
  const Owned<ibv_cq> other = owned(ibv_create_cq(context(), 8, nullptr, channel.get(), 0), ibv_destroy_cq);
  const Owned<ibv_qp> a = PairTest::make_qp(other.get());
  const Owned<ibv_qp> b = PairTest::make_qp(left.cq.get());
  connect(a.get(), b.get());
  connect(b.get(), a.get());
  int events = 0;
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    ping();
    ASSERT_EQ(ibv_req_notify_cq(other.get(), 0), 0);
    ibv_recv_wr receive{};
    ASSERT_EQ(post(a.get(), receive), 0);
    ibv_send_wr send = request(IBV_WR_SEND, 1);
    ASSERT_EQ(post(b.get(), send), 0);
    ASSERT_TRUE(wait_completion(left.cq.get()));
  }
  std::array<unsigned, 2> seen{};
  while (readable(channel->fd, 200ms)) {
    ibv_cq* which = nullptr;
    void* user = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel.get(), &which, &user), 0);
    ++seen[which == cq.get() ? 0 : 1];
    ++events;
  }
  EXPECT_EQ(events, 6);
  EXPECT_EQ(seen[0], 3U);
  EXPECT_EQ(seen[1], 3U);
  ibv_ack_cq_events(cq.get(), seen[0]);
  ibv_ack_cq_events(other.get(), seen[1]);
}

TEST_F(ChannelTest, DestroyDropsUnreadEvents) {
  ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
  ping();
  ASSERT_TRUE(readable(channel->fd, 5s));
  receiver.reset();
  cq.reset();
  EXPECT_FALSE(readable(channel->fd, 0ms));
}

TEST_F(ChannelTest, DestroyWaitsForTheAcknowledgement) {
  ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
  ping();
  expect_event();
  receiver.reset();
  ibv_cq* const raw = cq.get();
  std::atomic<bool> destroyed{false};
  std::thread destroyer([&] {
    cq.reset();
    destroyed = true;
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(destroyed);
  ibv_ack_cq_events(raw, 1);
  destroyer.join();
  EXPECT_TRUE(destroyed);
}

TEST_F(ChannelTest, ChannelInUseCannotBeDestroyed) { EXPECT_EQ(ibv_destroy_comp_channel(channel.get()), EBUSY); }

class AsyncTest : public PairTest {
 protected:
  /// A write with a wrong key: an access error on the right side.
  void break_right() {
    ibv_sge from = left.sge(0, 64);
    ibv_send_wr write = request(IBV_WR_RDMA_WRITE, 1);
    write.sg_list = &from;
    write.num_sge = 1;
    write.wr.rdma.remote_addr = right.address(0);
    write.wr.rdma.rkey = right.mr->rkey ^ 1;
    ASSERT_EQ(post(left.qp.get(), write), 0);
    ASSERT_TRUE(wait_completion(left.cq.get()));
  }

  void expect_event_of_right(ibv_event_type type) {
    auto event = next_event(context(), type);  // others (communication established) may come before
    ASSERT_TRUE(event) << ibv_event_type_str(type);
    EXPECT_EQ(event->element.qp, right.qp.get());
    ibv_ack_async_event(&*event);
  }
};

TEST_F(AsyncTest, AccessErrorIsToldWithItsQueuePair) {
  break_right();
  expect_event_of_right(IBV_EVENT_QP_ACCESS_ERR);
}

TEST_F(AsyncTest, TheFirstPacketEstablishesCommunication) {
  const Owned<ibv_qp> sender = make_qp(left.cq.get());
  const Owned<ibv_qp> receiver = make_qp(right.cq.get());
  connect(sender.get(), receiver.get());
  const Address there = address_of(sender.get());
  ibv_qp_attr rtr = rtr_attributes(there, there.gid_index);
  ASSERT_EQ(to_init(receiver.get()), 0);
  ASSERT_EQ(ibv_modify_qp(receiver.get(), &rtr, kRtrMask), 0);
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE, 1);
  ASSERT_EQ(post(sender.get(), write), 0);
  auto event = next_event(context(), IBV_EVENT_COMM_EST);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->element.qp, receiver.get());
  ibv_ack_async_event(&*event);
}

TEST_F(AsyncTest, NonBlockingReadSaysAgain) {
  set_nonblocking(context()->async_fd);
  ibv_async_event event{};
  errno = 0;
  while (ibv_get_async_event(context(), &event) == 0) ibv_ack_async_event(&event);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(AsyncTest, OtherContextsHearNothingOfIt) {
  const Owned<ibv_context> other = open_first_device();
  break_right();
  expect_event_of_right(IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_FALSE(readable(other->async_fd, 20ms));
}

TEST_F(AsyncTest, DestroyDropsUnreadEventsAndWaitsForReadOnes) {
  break_right();
  ASSERT_TRUE(readable(context()->async_fd, 5s));
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(context(), &event), 0);
  ASSERT_EQ(event.element.qp, right.qp.get());
  std::atomic<bool> destroyed{false};
  std::thread destroyer([&] {
    right.qp.reset();
    destroyed = true;
  });
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(destroyed);
  ibv_ack_async_event(&event);
  destroyer.join();
  left.qp.reset();
  EXPECT_FALSE(readable(context()->async_fd, 0ms));
}

TEST_F(AsyncTest, OverrunIsFatalForTheQueueAndTold) {
  Owned<ibv_cq> narrow = make_cq(2);
  Owned<ibv_qp> sender = make_qp(narrow.get());
  const Owned<ibv_qp> receiver = make_qp(right.cq.get());
  connect(sender.get(), receiver.get());
  connect(receiver.get(), sender.get());
  const int depth = narrow->cqe;
  for (int i = 0; i <= depth; ++i) {  // one more than fits
    ibv_send_wr write = request(IBV_WR_RDMA_WRITE, static_cast<std::uint64_t>(i));
    write.wr.rdma.remote_addr = right.address(0);
    write.wr.rdma.rkey = right.mr->rkey;
    ASSERT_EQ(post(sender.get(), write), 0);
  }
  std::this_thread::sleep_for(200ms);  // all complete without a poll
  std::array<ibv_wc, 8> wc{};
  for (int i = 0; i < depth; ++i) EXPECT_EQ(ibv_poll_cq(narrow.get(), 1, wc.data()), 1);
  EXPECT_EQ(ibv_poll_cq(narrow.get(), 1, wc.data()), -1);
  EXPECT_EQ(ibv_poll_cq(narrow.get(), 1, wc.data()), -1);

  ASSERT_TRUE(readable(context()->async_fd, 5s));
  ibv_async_event event{};
  do {
    ASSERT_EQ(ibv_get_async_event(context(), &event), 0);
    if (event.event_type != IBV_EVENT_CQ_ERR) ibv_ack_async_event(&event);
  } while (event.event_type != IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, narrow.get());
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(sender.get(), &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);  // with its completions lost it is of no use, either
  sender.reset();
  std::thread later([&] {
    std::this_thread::sleep_for(20ms);
    ibv_ack_async_event(&event);
  });
  narrow.reset();  // waits for that
  later.join();
}

}  // namespace
}  // namespace tensorwire::ibverbs::test
