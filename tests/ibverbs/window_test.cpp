// Memory windows through verbs: type 1 by ibv_bind_mw, type 2 by work requests of both interfaces, SEND with
// invalidate.
#include <array>

#include "ibverbs/verbs_fixture.hpp"

namespace tensorwire::ibverbs::test {
namespace {

constexpr int kBindable = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
constexpr unsigned kRemote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// `right` owns the windows, `left` comes through them. The queue pairs have the extended interface, too.
class WindowTest : public PairTest {
 protected:
  void SetUp() override {
    PairTest::SetUp();
    region = register_bytes(memory, kBindable);
    ASSERT_NE(region, nullptr);
  }
  [[nodiscard]] Owned<ibv_qp> make_qp(ibv_cq* cq) override {
    ibv_qp_init_attr_ex attributes{};
    const ibv_qp_init_attr plain = rc_attributes(cq, cq);
    std::memcpy(&attributes, &plain, offsetof(ibv_qp_init_attr_ex, comp_mask));
    attributes.pd = pd();
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.send_ops_flags =
        IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
    return owned(ibv_create_qp_ex(context(), &attributes), ibv_destroy_qp);
  }
  [[nodiscard]] Owned<ibv_mw> window(ibv_mw_type type) const { return owned(ibv_alloc_mw(pd(), type), ibv_dealloc_mw); }
  [[nodiscard]] ibv_mw_bind_info info(std::size_t offset = 0, std::size_t length = 1024,
                                      unsigned access = kRemote) const {
    return {.mr = region.get(), .addr = there(offset), .length = length, .mw_access_flags = access};
  }
  [[nodiscard]] std::uint64_t there(std::size_t offset) const {
    return reinterpret_cast<std::uint64_t>(memory.data() + offset);
  }

  static void expect(const Side& of, ibv_wc_opcode opcode, ibv_wc_status status = IBV_WC_SUCCESS) {
    const auto done = wait_completion(of.cq.get());
    ASSERT_TRUE(done);
    EXPECT_EQ(done->status, status);
    if (status == IBV_WC_SUCCESS) {
      EXPECT_EQ(done->opcode, opcode);
    }
  }
  void bind(const Owned<ibv_mw>& mw, std::uint32_t rkey, const ibv_mw_bind_info& what,
            ibv_wc_status status = IBV_WC_SUCCESS) {
    ibv_send_wr wr = request(IBV_WR_BIND_MW, 1);
    wr.bind_mw.mw = mw.get();
    wr.bind_mw.rkey = rkey;
    wr.bind_mw.bind_info = what;
    ASSERT_EQ(post(right.qp.get(), wr), 0);
    expect(right, IBV_WC_BIND_MW, status);
  }
  void bind_type1(const Owned<ibv_mw>& mw, const ibv_mw_bind_info& what) {
    ibv_mw_bind how{.wr_id = 1, .send_flags = IBV_SEND_SIGNALED, .bind_info = what};
    ASSERT_EQ(ibv_bind_mw(right.qp.get(), mw.get(), &how), 0);
    expect(right, IBV_WC_BIND_MW);
  }
  void write(std::uint32_t rkey, std::size_t offset, std::size_t length, ibv_wc_status status = IBV_WC_SUCCESS) {
    ibv_sge sge = left.sge(0, length);
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, 2);
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma = {.remote_addr = there(offset), .rkey = rkey};
    ASSERT_EQ(post(left.qp.get(), wr), 0);
    expect(left, IBV_WC_RDMA_WRITE, status);
  }

  std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(16 * 1024);
  Owned<ibv_mr> region;
};

TEST_F(WindowTest, TheDeviceSaysThatItHasThem) {
  ibv_device_attr attributes{};
  ASSERT_EQ(ibv_query_device(context(), &attributes), 0);
  EXPECT_GT(attributes.max_mw, 0);
  for (const unsigned flag : {unsigned{IBV_DEVICE_MEM_WINDOW}, unsigned{IBV_DEVICE_MEM_WINDOW_TYPE_2B},
                              unsigned{IBV_DEVICE_MEM_MGT_EXTENSIONS}}) {
    EXPECT_NE(attributes.device_cap_flags & flag, 0U) << flag;
  }
  EXPECT_EQ(attributes.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A, 0U);
}

TEST_F(WindowTest, AllocatedAndFreed) {
  const Owned<ibv_mw> mw = window(IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  EXPECT_EQ(mw->context, context());
  EXPECT_EQ(mw->pd, pd());
  EXPECT_EQ(mw->type, IBV_MW_TYPE_2);
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(pd(), static_cast<ibv_mw_type>(3)), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_pd* domain = ibv_alloc_pd(context());
  ibv_mw* inside = ibv_alloc_mw(domain, IBV_MW_TYPE_1);
  EXPECT_EQ(ibv_dealloc_pd(domain), EBUSY);
  EXPECT_EQ(ibv_dealloc_mw(inside), 0);
  EXPECT_EQ(ibv_dealloc_pd(domain), 0);
}

TEST_F(WindowTest, TypeOneIsBoundByItsVerb) {
  const Owned<ibv_mw> mw = window(IBV_MW_TYPE_1);
  const std::uint32_t first = mw->rkey;
  ASSERT_NO_FATAL_FAILURE(bind_type1(mw, info(64, 128)));
  EXPECT_EQ(mw->rkey, ibv_inc_rkey(first));
  ASSERT_NO_FATAL_FAILURE(write(mw->rkey, 64, 128));
  EXPECT_EQ(std::memcmp(memory.data() + 64, left.buffer.data(), 128), 0);
  const std::uint32_t second = mw->rkey;
  ASSERT_NO_FATAL_FAILURE(bind_type1(mw, info(512, 64)));
  ASSERT_NO_FATAL_FAILURE(write(mw->rkey, 512, 64));
  ASSERT_NO_FATAL_FAILURE(write(second, 64, 128, IBV_WC_REM_ACCESS_ERR));
}

TEST_F(WindowTest, TypeOneIsClosedByABindingOfNothing) {
  const Owned<ibv_mw> mw = window(IBV_MW_TYPE_1);
  ASSERT_NO_FATAL_FAILURE(bind_type1(mw, info()));
  EXPECT_EQ(ibv_dereg_mr(region.get()), EBUSY);
  ASSERT_NO_FATAL_FAILURE(bind_type1(mw, {}));
  ASSERT_NO_FATAL_FAILURE(write(mw->rkey, 0, 8, IBV_WC_REM_ACCESS_ERR));
}

TEST_F(WindowTest, TypeOneThatCannotBeBound) {
  const Owned<ibv_mw> mw = window(IBV_MW_TYPE_1);
  const std::uint32_t key = mw->rkey;
  ibv_mw_bind how{.wr_id = 1, .send_flags = 0, .bind_info = info(0, 64, kRemote | IBV_ACCESS_ZERO_BASED)};
  EXPECT_EQ(ibv_bind_mw(right.qp.get(), mw.get(), &how), EINVAL);
  EXPECT_EQ(mw->rkey, key);
}

TEST_F(WindowTest, TypeTwoIsBoundByAWorkRequestAndInvalidatedByItsOwner) {
  const Owned<ibv_mw> mw = window(IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(mw->rkey);
  ASSERT_NO_FATAL_FAILURE(bind(mw, key, info(64, 128, kRemote | IBV_ACCESS_LOCAL_WRITE)));
  ASSERT_NO_FATAL_FAILURE(write(key, 64, 128));
  EXPECT_EQ(ibv_dereg_mr(region.get()), EBUSY);
  ibv_send_wr wr = request(IBV_WR_LOCAL_INV, 3);
  wr.invalidate_rkey = key;
  ASSERT_EQ(post(right.qp.get(), wr), 0);
  ASSERT_NO_FATAL_FAILURE(expect(right, IBV_WC_LOCAL_INV));
  ASSERT_NO_FATAL_FAILURE(write(key, 64, 128, IBV_WC_REM_ACCESS_ERR));
}

TEST_F(WindowTest, TheTagIsTheBindersChoice) {
  const Owned<ibv_mw> mw = window(IBV_MW_TYPE_2);
  const std::uint32_t key = (mw->rkey & ~0xffU) | 0xabU;
  ASSERT_NO_FATAL_FAILURE(bind(mw, key, info()));
  ASSERT_NO_FATAL_FAILURE(write(key, 0, 8));
  ASSERT_NO_FATAL_FAILURE(write(key ^ 1U, 0, 8, IBV_WC_REM_ACCESS_ERR));
}

TEST_F(WindowTest, WhatIsNoBindingIsRefusedWhenItIsPosted) {
  const Owned<ibv_mw> type1 = window(IBV_MW_TYPE_1);
  const Owned<ibv_mw> type2 = window(IBV_MW_TYPE_2);
  const auto outcome = [&](ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info& what) {
    ibv_send_wr wr = request(IBV_WR_BIND_MW, 1);
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = rkey;
    wr.bind_mw.bind_info = what;
    return post(right.qp.get(), wr);
  };
  EXPECT_EQ(outcome(nullptr, type2->rkey, info()), EINVAL);
  EXPECT_EQ(outcome(type1.get(), type1->rkey, info()), EINVAL);
  EXPECT_EQ(outcome(type2.get(), type1->rkey, info()), EINVAL) << "the key of another window";
  EXPECT_EQ(outcome(type2.get(), type2->rkey, {}), EINVAL);
  EXPECT_EQ(outcome(type2.get(), type2->rkey, info(0, 64, IBV_ACCESS_ZERO_BASED)), EINVAL);
  EXPECT_EQ(outcome(type2.get(), type2->rkey, info()), 0);
}

TEST_F(WindowTest, ARegionWithoutTheRightEndsInABindError) {
  const Owned<ibv_mw> mw = window(IBV_MW_TYPE_2);
  ibv_mw_bind_info what = info();
  what.mr = right.mr.get();
  what.addr = right.address(0);
  ASSERT_NO_FATAL_FAILURE(bind(mw, mw->rkey, what, IBV_WC_MW_BIND_ERR));
}

TEST_F(WindowTest, ThePeerInvalidatesWithASend) {
  const Owned<ibv_mw> mw = window(IBV_MW_TYPE_2);
  const std::uint32_t key = ibv_inc_rkey(mw->rkey);
  ASSERT_NO_FATAL_FAILURE(bind(mw, key, info()));
  ibv_sge to = right.sge(0, 4096);
  ibv_recv_wr receive{.wr_id = 9, .next = nullptr, .sg_list = &to, .num_sge = 1};
  ASSERT_EQ(post(right.qp.get(), receive), 0);
  ibv_sge from = left.sge(0, 3000);
  ibv_send_wr wr = request(IBV_WR_SEND_WITH_INV, 4);
  wr.sg_list = &from;
  wr.num_sge = 1;
  wr.invalidate_rkey = key;
  ASSERT_EQ(post(left.qp.get(), wr), 0);
  const auto done = wait_completion(right.cq.get());
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status, IBV_WC_SUCCESS);
  EXPECT_EQ(done->opcode, IBV_WC_RECV);
  EXPECT_EQ(done->wc_flags, unsigned{IBV_WC_WITH_INV});
  EXPECT_EQ(done->invalidated_rkey, key);
  EXPECT_EQ(done->byte_len, 3000U);
  EXPECT_EQ(std::memcmp(right.buffer.data(), left.buffer.data(), 3000), 0);
  ASSERT_NO_FATAL_FAILURE(expect(left, IBV_WC_SEND));
  ASSERT_NO_FATAL_FAILURE(write(key, 0, 8, IBV_WC_REM_ACCESS_ERR));
}

TEST_F(WindowTest, ThePeerCannotInvalidateARegion) {
  ibv_recv_wr receive{.wr_id = 9, .next = nullptr, .sg_list = nullptr, .num_sge = 0};
  ASSERT_EQ(post(right.qp.get(), receive), 0);
  ibv_send_wr wr = request(IBV_WR_SEND_WITH_INV, 4);
  wr.invalidate_rkey = right.mr->rkey;
  ASSERT_EQ(post(left.qp.get(), wr), 0);
  ASSERT_NO_FATAL_FAILURE(expect(right, IBV_WC_RECV, IBV_WC_REM_INV_REQ_ERR));
  ASSERT_NO_FATAL_FAILURE(expect(left, IBV_WC_SEND, IBV_WC_REM_ACCESS_ERR));
}

TEST_F(WindowTest, TheExtendedInterfaceHasAllOfIt) {
  const Owned<ibv_mw> mw = window(IBV_MW_TYPE_2);
  const Owned<ibv_mw> type1 = window(IBV_MW_TYPE_1);
  ibv_qp_ex* owner = ibv_qp_to_qp_ex(right.qp.get());
  ibv_qp_ex* peer = ibv_qp_to_qp_ex(left.qp.get());
  const std::uint32_t first = ibv_inc_rkey(mw->rkey);
  const std::uint32_t second = ibv_inc_rkey(first);
  {
    const ibv_mw_bind_info what = info();
    ibv_wr_start(owner);
    owner->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_bind_mw(owner, mw.get(), first, &what);
    ibv_wr_local_inv(owner, first);
    ibv_wr_bind_mw(owner, mw.get(), second, &what);
    ASSERT_EQ(ibv_wr_complete(owner), 0);
    ibv_wr_start(owner);
    ibv_wr_bind_mw(owner, type1.get(), type1->rkey, &what);
    EXPECT_EQ(ibv_wr_complete(owner), EINVAL) << "type 1 has its own verb";
  }
  ASSERT_NO_FATAL_FAILURE(expect(right, IBV_WC_BIND_MW));
  ASSERT_NO_FATAL_FAILURE(expect(right, IBV_WC_LOCAL_INV));
  ASSERT_NO_FATAL_FAILURE(expect(right, IBV_WC_BIND_MW));
  ibv_recv_wr receive{.wr_id = 9, .next = nullptr, .sg_list = nullptr, .num_sge = 0};
  ASSERT_EQ(post(right.qp.get(), receive), 0);
  ibv_wr_start(peer);
  peer->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(peer, second, there(0));
  ibv_wr_set_sge(peer, left.mr->lkey, left.address(0), 64);
  ibv_wr_send_inv(peer, second);
  ASSERT_EQ(ibv_wr_complete(peer), 0);
  ASSERT_NO_FATAL_FAILURE(expect(left, IBV_WC_RDMA_WRITE));
  ASSERT_NO_FATAL_FAILURE(expect(left, IBV_WC_SEND));
  const auto done = wait_completion(right.cq.get());
  ASSERT_TRUE(done);
  EXPECT_EQ(done->invalidated_rkey, second);
}

TEST_F(WindowTest, TheExtendedPollReadsTheKey) {
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = 16;
  attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* cq = ibv_create_cq_ex(context(), &attributes);
  ASSERT_NE(cq, nullptr);
  const Owned<ibv_cq> owner = owned(ibv_cq_ex_to_cq(cq), ibv_destroy_cq);
  ibv_qp_init_attr plain = rc_attributes(owner.get(), owner.get());
  const Owned<ibv_qp> here = owned(ibv_create_qp(pd(), &plain), ibv_destroy_qp);
  const Owned<ibv_qp> peer = make_qp(left.cq.get());
  ASSERT_NO_FATAL_FAILURE(connect(here.get(), peer.get()));
  ASSERT_NO_FATAL_FAILURE(connect(peer.get(), here.get()));
  const Owned<ibv_mw> mw = window(IBV_MW_TYPE_2);
  ibv_send_wr wr = request(IBV_WR_BIND_MW, 1);
  wr.bind_mw = {.mw = mw.get(), .rkey = mw->rkey, .bind_info = info()};
  ASSERT_EQ(post(here.get(), wr), 0);
  ASSERT_TRUE(wait_completion(owner.get()));
  ibv_recv_wr receive{.wr_id = 9, .next = nullptr, .sg_list = nullptr, .num_sge = 0};
  ASSERT_EQ(post(here.get(), receive), 0);
  ibv_send_wr send = request(IBV_WR_SEND_WITH_INV, 2);
  send.invalidate_rkey = mw->rkey;
  ASSERT_EQ(post(peer.get(), send), 0);
  ASSERT_NO_FATAL_FAILURE(expect(left, IBV_WC_SEND));
  ibv_poll_cq_attr from{};
  ASSERT_EQ(ibv_start_poll(cq, &from), 0);
  EXPECT_EQ(ibv_wc_read_wc_flags(cq), unsigned{IBV_WC_WITH_INV});
  EXPECT_EQ(ibv_wc_read_invalidated_rkey(cq), mw->rkey);
  ibv_end_poll(cq);
}

TEST_F(WindowTest, AFreedWindowOpensNothing) {
  ibv_mw* mw = ibv_alloc_mw(pd(), IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  const std::uint32_t key = mw->rkey;
  {
    ibv_send_wr wr = request(IBV_WR_BIND_MW, 1);
    wr.bind_mw = {.mw = mw, .rkey = key, .bind_info = info()};
    ASSERT_EQ(post(right.qp.get(), wr), 0);
    ASSERT_NO_FATAL_FAILURE(expect(right, IBV_WC_BIND_MW));
  }
  EXPECT_EQ(ibv_dealloc_mw(mw), 0) << "bound";
  ASSERT_NO_FATAL_FAILURE(write(key, 0, 8, IBV_WC_REM_ACCESS_ERR));
}

TEST_F(WindowTest, AQueuePairForDatagramsHasNone) {
  ibv_qp_init_attr attributes = rc_attributes(right.cq.get(), right.cq.get());
  attributes.qp_type = IBV_QPT_UD;
  const Owned<ibv_qp> qp = owned(ibv_create_qp(pd(), &attributes), ibv_destroy_qp);
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = 1;
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
  attr.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE), 0);
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  ibv_send_wr wr = request(IBV_WR_LOCAL_INV, 1);
  EXPECT_EQ(post(qp.get(), wr), EOPNOTSUPP);
}

}  // namespace
}  // namespace tensorwire::ibverbs::test
