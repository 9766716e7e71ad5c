// UC queue pairs through the drop-in.
#include <arpa/inet.h>

#include <array>
#include <cstring>

#include "ibverbs/direct.h"
#include "ibverbs/verbs_fixture.hpp"

namespace tensorwire::ibverbs::test {
namespace {

constexpr int kUcRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kUcRtsMask = IBV_QP_STATE | IBV_QP_SQ_PSN;

class UnreliableTest : public VerbsTest {
 protected:
  void SetUp() override {
    VerbsTest::SetUp();
    mr_ = register_bytes(buffer_);
    cq_ = make_cq();
    left_ = make_qp();
    right_ = make_qp();
    connect(left_.get(), right_.get());
    connect(right_.get(), left_.get());
    for (std::size_t i = 0; i < kBytes; ++i) buffer_[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  }

  [[nodiscard]] ibv_qp_init_attr_ex wanted(std::uint64_t ops) const {
    ibv_qp_init_attr_ex attributes{};
    attributes.send_cq = attributes.recv_cq = cq_.get();
    attributes.cap = rc_attributes(nullptr, nullptr).cap;
    attributes.qp_type = IBV_QPT_UC;
    attributes.pd = pd();
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.send_ops_flags = ops;
    return attributes;
  }
  [[nodiscard]] Owned<ibv_qp> make_qp() const {
    ibv_qp_init_attr_ex attributes = wanted(kOps);
    return owned(ibv_create_qp_ex(context(), &attributes), ibv_destroy_qp);
  }
  void connect(ibv_qp* qp, const ibv_qp* peer) const {
    const Address there = address_of(peer);
    ibv_qp_attr rtr = rtr_attributes(there, there.gid_index);
    ibv_qp_attr rts = rts_attributes();
    ASSERT_EQ(to_init(qp), 0);
    EXPECT_EQ(ibv_modify_qp(qp, &rtr, kRtrMask), EINVAL);  // no responder resources, no RNR timer
    ASSERT_EQ(ibv_modify_qp(qp, &rtr, kUcRtrMask), 0);
    EXPECT_EQ(ibv_modify_qp(qp, &rts, kRtsMask), EINVAL);  // no timeout, no retries
    ASSERT_EQ(ibv_modify_qp(qp, &rts, kUcRtsMask), 0);
  }
  [[nodiscard]] ibv_sge sge(std::size_t offset, std::uint32_t length) const {
    return {.addr = reinterpret_cast<std::uint64_t>(buffer_.data() + offset), .length = length, .lkey = mr_->lkey};
  }
  [[nodiscard]] int post(ibv_wr_opcode opcode, std::uint64_t wr_id, ibv_sge from) const {
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &from;
    wr.num_sge = 1;
    wr.imm_data = htonl(77);
    wr.wr.rdma.remote_addr = sge(kHalf, 0).addr;
    wr.wr.rdma.rkey = mr_->rkey;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(left_.get(), &wr, &bad);
  }
  void post_receive(std::uint64_t wr_id) const {
    ibv_sge to = sge(kHalf, kHalf);
    ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = &to, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(right_.get(), &wr, &bad), 0);
  }
  /// One completion of each end.
  void expect_both(std::uint64_t sent, std::uint64_t received, ibv_wc_opcode opcode) const {
    for (int i = 0; i < 2; ++i) {
      const auto wc = wait_completion(cq_.get());
      ASSERT_TRUE(wc);
      EXPECT_EQ(wc->status, IBV_WC_SUCCESS);
      const bool of_receive = (wc->opcode & IBV_WC_RECV) != 0;
      EXPECT_EQ(wc->wr_id, of_receive ? received : sent);
      if (!of_receive) continue;
      EXPECT_EQ(wc->opcode, opcode);
      EXPECT_EQ(wc->qp_num, right_->qp_num);
      EXPECT_EQ(wc->src_qp, left_->qp_num);
    }
  }

  static constexpr std::uint64_t kOps = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
                                        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  static constexpr std::uint32_t kBytes = 16 * 1024, kHalf = kBytes / 2;

  std::vector<std::uint8_t> buffer_ = std::vector<std::uint8_t>(kBytes);
  Owned<ibv_mr> mr_;
  Owned<ibv_cq> cq_;
  Owned<ibv_qp> left_, right_;
};

TEST_F(UnreliableTest, SendsAndWrites) {
  for (const auto& [opcode, arrival] :
       {std::pair{IBV_WR_SEND, IBV_WC_RECV}, std::pair{IBV_WR_SEND_WITH_IMM, IBV_WC_RECV},
        std::pair{IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RECV_RDMA_WITH_IMM}}) {
    std::memset(buffer_.data() + kHalf, 0, kHalf);
    post_receive(2);
    ASSERT_EQ(post(opcode, 1, sge(0, 5000)), 0);
    expect_both(1, 2, arrival);
    EXPECT_EQ(std::memcmp(buffer_.data(), buffer_.data() + kHalf, 5000), 0);
  }
  ASSERT_EQ(post(IBV_WR_RDMA_WRITE, 3, sge(0, 10)), 0);
  EXPECT_EQ(wait_completion(cq_.get())->opcode, IBV_WC_RDMA_WRITE);
}

TEST_F(UnreliableTest, ExtendedPosting) {
  post_receive(2);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(left_.get());
  ASSERT_NE(qp, nullptr);
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write_imm(qp, mr_->rkey, sge(kHalf, 0).addr, htonl(5));
  ibv_wr_set_sge(qp, mr_->lkey, sge(0, 0).addr, 2000);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  expect_both(1, 2, IBV_WC_RECV_RDMA_WITH_IMM);
}

TEST_F(UnreliableTest, WhatBringsAnAnswerIsRefused) {
  EXPECT_EQ(post(IBV_WR_RDMA_READ, 1, sge(0, 8)), EINVAL);
  EXPECT_EQ(post(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, sge(0, 8)), EINVAL);
  EXPECT_EQ(post(IBV_WR_ATOMIC_CMP_AND_SWP, 1, sge(0, 8)), EINVAL);
  ibv_qp_init_attr_ex attributes = wanted(kOps | IBV_QP_EX_WITH_RDMA_READ);
  EXPECT_EQ(ibv_create_qp_ex(context(), &attributes), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(UnreliableTest, ALocalErrorIsASendErrorThatCanBeMended) {
  ibv_sge bad = sge(0, 10);
  bad.lkey ^= 1;
  ASSERT_EQ(post(IBV_WR_SEND, 1, bad), 0);
  EXPECT_EQ(wait_completion(cq_.get())->status, IBV_WC_LOC_PROT_ERR);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(left_.get(), &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_SQE);
  EXPECT_EQ(init.qp_type, IBV_QPT_UC);
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(ibv_modify_qp(left_.get(), &attr, IBV_QP_STATE), 0);
  post_receive(3);
  ASSERT_EQ(post(IBV_WR_SEND, 2, sge(0, 10)), 0);
  expect_both(2, 3, IBV_WC_RECV);
}

TEST_F(UnreliableTest, LinkDescriptionSaysPackets) {
  std::array<char, 256> text{};
  ASSERT_EQ(twdv_link_description(left_.get(), text.data(), text.size()), 0);
  EXPECT_NE(std::strstr(text.data(), "packets"), nullptr) << text.data();
}

}  // namespace
}  // namespace tensorwire::ibverbs::test
