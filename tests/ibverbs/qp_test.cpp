#include <bit>

#include "ibverbs/verbs_fixture.hpp"

namespace tensorwire::ibverbs::test {
namespace {

class QpTest : public VerbsTest {
 protected:
  void SetUp() override {
    VerbsTest::SetUp();
    cq_ = make_cq();
    ASSERT_NE(cq_, nullptr);
  }
  [[nodiscard]] ibv_qp* create(ibv_qp_init_attr& attributes) { return ibv_create_qp(pd(), &attributes); }
  [[nodiscard]] ibv_qp_init_attr attributes() { return rc_attributes(cq_.get(), cq_.get()); }
  [[nodiscard]] Owned<ibv_qp> make_qp() {
    ibv_qp_init_attr wanted = attributes();
    return owned(create(wanted), ibv_destroy_qp);
  }

  Owned<ibv_cq> cq_;
};

TEST_F(QpTest, GivesAtLeastWhatWasAsked) {
  ibv_qp_init_attr wanted = attributes();
  const ibv_qp_cap asked = wanted.cap;
  const Owned<ibv_qp> qp = owned(create(wanted), ibv_destroy_qp);
  ASSERT_NE(qp, nullptr);
  EXPECT_GE(wanted.cap.max_send_wr, asked.max_send_wr);
  EXPECT_GE(wanted.cap.max_recv_wr, asked.max_recv_wr);
  EXPECT_GE(wanted.cap.max_send_sge, asked.max_send_sge);
  EXPECT_GE(wanted.cap.max_recv_sge, asked.max_recv_sge);
  EXPECT_GE(wanted.cap.max_inline_data, asked.max_inline_data);
  EXPECT_EQ(qp->state, IBV_QPS_RESET);
  EXPECT_EQ(qp->qp_type, IBV_QPT_RC);
  EXPECT_EQ(qp->send_cq, cq_.get());
  EXPECT_EQ(qp->pd, pd());
  EXPECT_GT(qp->qp_num, 1U);
  EXPECT_LT(qp->qp_num, 1U << 24);
}

TEST_F(QpTest, NumbersDiffer) {
  const Owned<ibv_qp> a = make_qp();
  const Owned<ibv_qp> b = make_qp();
  EXPECT_NE(a->qp_num, b->qp_num);
}

TEST_F(QpTest, NoQueueOfZeroLengthIsRefused) {
  ibv_qp_init_attr wanted = attributes();
  wanted.cap = {};
  const Owned<ibv_qp> qp = owned(create(wanted), ibv_destroy_qp);
  EXPECT_NE(qp, nullptr);
}

TEST_F(QpTest, BeyondTheLimitsIsInvalid) {
  ibv_device_attr device{};
  ASSERT_EQ(ibv_query_device(context(), &device), 0);
  for (int field = 0; field < 5; ++field) {
    ibv_qp_init_attr wanted = attributes();
    switch (field) {
      case 0:
        wanted.cap.max_send_wr = static_cast<std::uint32_t>(device.max_qp_wr) + 1;
        break;
      case 1:
        wanted.cap.max_recv_wr = static_cast<std::uint32_t>(device.max_qp_wr) + 1;
        break;
      case 2:
        wanted.cap.max_send_sge = static_cast<std::uint32_t>(device.max_sge) + 1;
        break;
      case 3:
        wanted.cap.max_recv_sge = static_cast<std::uint32_t>(device.max_sge) + 1;
        break;
      default:
        wanted.cap.max_inline_data = 1 << 20;
        break;
    }
    errno = 0;
    EXPECT_EQ(create(wanted), nullptr) << field;
    EXPECT_EQ(errno, EINVAL) << field;
  }
}

TEST_F(QpTest, OtherTypesAreNotSupported) {
  for (const ibv_qp_type type : {IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_DRIVER}) {
    ibv_qp_init_attr wanted = attributes();
    wanted.qp_type = type;
    errno = 0;
    EXPECT_EQ(create(wanted), nullptr) << type;
    EXPECT_EQ(errno, EOPNOTSUPP) << type;
  }
}

TEST_F(QpTest, QueuesOfAnotherContextAreInvalid) {
  const Owned<ibv_context> other = open_first_device();
  const Owned<ibv_cq> foreign = owned(ibv_create_cq(other.get(), 8, nullptr, nullptr, 0), ibv_destroy_cq);
  ibv_qp_init_attr wanted = attributes();
  wanted.recv_cq = foreign.get();
  errno = 0;
  EXPECT_EQ(create(wanted), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(QpTest, ReadyToReceiveNeedsAGlobalRoute) {
  const Owned<ibv_qp> qp = make_qp();
  ASSERT_EQ(to_init(qp.get()), 0);
  const Address peer = address_of(qp.get());
  ibv_qp_attr rtr = rtr_attributes(peer, peer.gid_index);
  rtr.ah_attr.is_global = 0;
  EXPECT_EQ(ibv_modify_qp(qp.get(), &rtr, kRtrMask), EINVAL);
  EXPECT_EQ(qp->state, IBV_QPS_INIT);
  rtr.ah_attr.is_global = 1;
  EXPECT_EQ(ibv_modify_qp(qp.get(), &rtr, kRtrMask), 0);
  EXPECT_EQ(qp->state, IBV_QPS_RTR);
}

TEST_F(QpTest, EmptyGidIndexHasNoData) {
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context(), 1, &port), 0);
  ibv_gid_entry entry{};
  int empty = -1;
  for (int index = 0; index < port.gid_tbl_len && empty < 0; ++index) {
    if (ibv_query_gid_ex(context(), 1, static_cast<std::uint32_t>(index), &entry, 0) == ENODATA) empty = index;
  }
  if (empty < 0) GTEST_SKIP() << "every index of this GID table is in use";
  const Owned<ibv_qp> qp = make_qp();
  ASSERT_EQ(to_init(qp.get()), 0);
  ibv_qp_attr rtr = rtr_attributes(address_of(qp.get()), static_cast<std::uint8_t>(empty));
  EXPECT_EQ(ibv_modify_qp(qp.get(), &rtr, kRtrMask), ENODATA);
  EXPECT_EQ(qp->state, IBV_QPS_INIT);
}

TEST_F(QpTest, StatesAndMasksAreChecked) {
  const Owned<ibv_qp> qp = make_qp();
  const Address peer = address_of(qp.get());
  ibv_qp_attr rtr = rtr_attributes(peer, peer.gid_index);
  EXPECT_EQ(ibv_modify_qp(qp.get(), &rtr, kRtrMask), EINVAL);  // from RESET
  ASSERT_EQ(to_init(qp.get()), 0);
  EXPECT_EQ(ibv_modify_qp(qp.get(), &rtr, kRtrMask & ~IBV_QP_DEST_QPN), EINVAL);
  rtr.path_mtu = std::bit_cast<ibv_mtu>(6);
  EXPECT_EQ(ibv_modify_qp(qp.get(), &rtr, kRtrMask), EINVAL);
  rtr.path_mtu = std::bit_cast<ibv_mtu>(0x101);  // would be 256 bytes if it were cut to a byte
  EXPECT_EQ(ibv_modify_qp(qp.get(), &rtr, kRtrMask), EINVAL);
  rtr.qp_state = IBV_QPS_UNKNOWN;
  EXPECT_EQ(ibv_modify_qp(qp.get(), &rtr, IBV_QP_STATE), EINVAL);
}

TEST_F(QpTest, QueryGivesBackWhatModifySet) {
  ibv_qp_init_attr wanted = attributes();
  wanted.sq_sig_all = 1;
  int cookie = 0;
  wanted.qp_context = &cookie;
  const Owned<ibv_qp> qp = owned(create(wanted), ibv_destroy_qp);
  const Owned<ibv_qp> peer = make_qp();
  connect(qp.get(), peer.get());
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(qp.get(), &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_CAP, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.cur_qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.dest_qp_num, peer->qp_num);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(attr.rq_psn, 0x123456U);
  EXPECT_EQ(attr.sq_psn, 0x123456U);
  EXPECT_EQ(attr.timeout, 14);
  EXPECT_EQ(attr.retry_cnt, 7);
  EXPECT_EQ(attr.rnr_retry, 7);
  EXPECT_EQ(attr.min_rnr_timer, 1);
  EXPECT_EQ(attr.port_num, 1);
  EXPECT_EQ(attr.ah_attr.is_global, 1);
  EXPECT_EQ(attr.ah_attr.grh.traffic_class, 104);
  EXPECT_EQ(attr.ah_attr.grh.hop_limit, 64);
  const Address address = address_of(peer.get());
  EXPECT_EQ(attr.ah_attr.grh.sgid_index, address.gid_index);
  EXPECT_EQ(std::memcmp(attr.ah_attr.grh.dgid.raw, address.gid.raw, 16), 0);
  EXPECT_EQ(attr.cap.max_inline_data, wanted.cap.max_inline_data);
  EXPECT_EQ(init.cap.max_send_wr, wanted.cap.max_send_wr);
  EXPECT_EQ(init.sq_sig_all, 1);
  EXPECT_EQ(init.qp_context, &cookie);
  EXPECT_EQ(init.send_cq, cq_.get());
}

TEST_F(QpTest, QueueInUseCannotBeDestroyed) {
  Owned<ibv_qp> qp = make_qp();
  EXPECT_EQ(ibv_destroy_cq(cq_.get()), EBUSY);
  qp.reset();
}

TEST_F(QpTest, PlainQueuePairHasNoExtendedInterface) {
  const Owned<ibv_qp> qp = make_qp();
  EXPECT_EQ(ibv_qp_to_qp_ex(qp.get()), nullptr);
}

TEST_F(QpTest, ExtendedCreationRefusesWhatItDoesNotKnow) {
  ibv_qp_init_attr_ex wanted{};
  wanted.send_cq = wanted.recv_cq = cq_.get();
  wanted.cap = attributes().cap;
  wanted.qp_type = IBV_QPT_RC;
  wanted.pd = pd();
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  wanted.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
  errno = 0;
  EXPECT_EQ(ibv_create_qp_ex(context(), &wanted), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  wanted.send_ops_flags = std::uint64_t{1} << 40;
  EXPECT_EQ(ibv_create_qp_ex(context(), &wanted), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD;
  EXPECT_EQ(ibv_create_qp_ex(context(), &wanted), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  wanted.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  wanted.send_ops_flags = IBV_QP_EX_WITH_SEND;
  EXPECT_EQ(ibv_create_qp_ex(context(), &wanted), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace tensorwire::ibverbs::test
