// Send queue drain through the drop-in: the pause in which a connection may be given other attributes.
#include <cstring>

#include "ibverbs/async_events.hpp"
#include "ibverbs/verbs_fixture.hpp"

namespace tensorwire::ibverbs::test {
namespace {

class DrainTest : public PairTest {
 protected:
  static int drain(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.en_sqd_async_notify = 1;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY);
  }
  static int resume(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
  }
  void await_drained(ibv_qp* qp) const {
    auto event = next_event(context(), IBV_EVENT_SQ_DRAINED);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->element.qp, qp);
    ibv_ack_async_event(&*event);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_SQD);
    EXPECT_EQ(attr.sq_draining, 0);
  }
  [[nodiscard]] int write(std::uint64_t wr_id, std::size_t bytes) {
    ibv_sge from = left.sge(0, bytes);
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, wr_id);
    wr.sg_list = &from;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = right.address(0);
    wr.wr.rdma.rkey = right.mr->rkey;
    return post(left.qp.get(), wr);
  }
};

TEST_F(DrainTest, WhatIsPostedInThePauseIsSentAfterIt) {
  ASSERT_EQ(write(1, kBufferBytes), 0);
  ASSERT_EQ(drain(left.qp.get()), 0);
  await_drained(left.qp.get());
  EXPECT_EQ(wait_completion(left.cq.get())->wr_id, 1U);
  ASSERT_EQ(write(2, 100), 0);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(left.cq.get(), 1, &wc), 0);
  ASSERT_EQ(resume(left.qp.get()), 0);
  const auto done = wait_completion(left.cq.get());
  ASSERT_TRUE(done);
  EXPECT_EQ(done->wr_id, 2U);
  EXPECT_EQ(done->status, IBV_WC_SUCCESS);
  EXPECT_EQ(left.buffer, right.buffer);
}

TEST_F(DrainTest, TheAddressMayChangeInThePause) {
  ASSERT_EQ(drain(left.qp.get()), 0);
  await_drained(left.qp.get());
  ibv_qp_attr attr = rtr_attributes(address_of(right.qp.get()), address_of(left.qp.get()).gid_index);
  attr.qp_state = IBV_QPS_SQD;
  attr.ah_attr.grh.traffic_class = 0;
  attr.timeout = 12;
  ASSERT_EQ(ibv_modify_qp(left.qp.get(), &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_TIMEOUT), 0);
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(left.qp.get(), &attr, IBV_QP_AV | IBV_QP_TIMEOUT, &init), 0);
  EXPECT_EQ(attr.ah_attr.grh.traffic_class, 0);
  EXPECT_EQ(attr.timeout, 12);
  ASSERT_EQ(resume(left.qp.get()), 0);
  ASSERT_EQ(write(1, kBufferBytes), 0);
  EXPECT_EQ(wait_completion(left.cq.get())->status, IBV_WC_SUCCESS);
  EXPECT_EQ(left.buffer, right.buffer);
}

TEST_F(DrainTest, WhatThePauseDoesNotPermit) {
  ASSERT_EQ(drain(left.qp.get()), 0);
  await_drained(left.qp.get());
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.sq_psn = 7;
  EXPECT_EQ(ibv_modify_qp(left.qp.get(), &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), EINVAL);
  attr.dest_qp_num = 7;
  EXPECT_EQ(ibv_modify_qp(left.qp.get(), &attr, IBV_QP_STATE | IBV_QP_DEST_QPN), EINVAL);
  attr.qp_state = IBV_QPS_RTR;
  EXPECT_EQ(ibv_modify_qp(left.qp.get(), &attr, IBV_QP_STATE), EINVAL);
  attr.qp_state = IBV_QPS_ERR;
  EXPECT_EQ(ibv_modify_qp(left.qp.get(), &attr, IBV_QP_STATE), 0);
}

}  // namespace
}  // namespace tensorwire::ibverbs::test
