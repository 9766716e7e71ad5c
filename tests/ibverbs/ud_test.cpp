// UD queue pairs and address handles between two queue pairs of this process.
#include <arpa/inet.h>

#include <array>

#include "ibverbs/direct.h"
#include "ibverbs/verbs_fixture.hpp"

namespace tensorwire::ibverbs::test {
namespace {

constexpr std::uint32_t kQkey = 0x1234;
constexpr std::size_t kGrh = sizeof(ibv_grh);

class DatagramTest : public PairTest {
 protected:
  void SetUp() override {
    VerbsTest::SetUp();
    for (Side* side : {&left, &right}) {
      side->mr = register_bytes(side->buffer);
      side->cq = make_cq();
      ASSERT_NE(side->cq, nullptr);
      side->qp = make_qp(side->cq.get());
      ASSERT_NE(side->qp, nullptr);
      ready(side->qp.get());
    }
    for (std::size_t i = 0; i < kBufferBytes; ++i) left.buffer[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
    ah = handle_to(right.qp.get());
    ASSERT_NE(ah, nullptr);
  }
  void TearDown() override { ah.reset(); }

  [[nodiscard]] Owned<ibv_qp> make_qp(ibv_cq* cq) override {
    ibv_qp_init_attr attributes = rc_attributes(cq, cq);
    attributes.qp_type = IBV_QPT_UD;
    return owned(ibv_create_qp(pd(), &attributes), ibv_destroy_qp);
  }

  static void ready(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = kQkey;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    attr.qp_state = IBV_QPS_RTR;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  }

  [[nodiscard]] ibv_ah_attr address(const ibv_qp* peer) const {
    const Address there = address_of(peer);
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = there.gid;
    attr.grh.sgid_index = there.gid_index;
    attr.grh.hop_limit = 64;
    attr.grh.traffic_class = 104;
    return attr;
  }
  [[nodiscard]] Owned<ibv_ah> handle_to(const ibv_qp* peer) const {
    ibv_ah_attr attr = address(peer);
    return owned(ibv_create_ah(pd(), &attr), ibv_destroy_ah);
  }

  [[nodiscard]] ibv_send_wr datagram(std::uint64_t wr_id, ibv_sge* from) const {
    ibv_send_wr send = request(IBV_WR_SEND, wr_id);
    send.sg_list = from;
    send.num_sge = 1;
    send.wr.ud.ah = ah.get();
    send.wr.ud.remote_qpn = right.qp->qp_num;
    send.wr.ud.remote_qkey = kQkey;
    return send;
  }
  void receive(Side& side, std::uint64_t wr_id, std::size_t bytes = 4096 + kGrh) {
    ibv_sge into = side.sge(0, bytes);
    ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = &into, .num_sge = 1};
    ASSERT_EQ(post(side.qp.get(), wr), 0);
  }

  Owned<ibv_ah> ah;
};

TEST_F(DatagramTest, ArrivesBehindItsHeader) {
  receive(right, 7);
  ibv_sge from = left.sge(100, 1001);
  ibv_send_wr send = datagram(8, &from);
  send.opcode = IBV_WR_SEND_WITH_IMM;
  send.imm_data = htonl(99);
  ASSERT_EQ(post(left.qp.get(), send), 0);
  const auto sent = wait_completion(left.cq.get());
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent->opcode, IBV_WC_SEND);
  const auto received = wait_completion(right.cq.get());
  ASSERT_TRUE(received);
  EXPECT_EQ(received->status, IBV_WC_SUCCESS);
  EXPECT_EQ(received->opcode, IBV_WC_RECV);
  EXPECT_EQ(received->wr_id, 7U);
  EXPECT_EQ(received->byte_len, kGrh + 1001);
  EXPECT_EQ(received->wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
  EXPECT_EQ(ntohl(received->imm_data), 99U);
  EXPECT_EQ(received->src_qp, left.qp->qp_num);
  EXPECT_EQ(received->sl, 0xa);  // RoCE v2 over IPv4, as mlx5 says it
  EXPECT_EQ(std::memcmp(right.buffer.data() + kGrh, left.buffer.data() + 100, 1001), 0);
  EXPECT_EQ(right.buffer[20], 0x45);  // the IP header
  EXPECT_EQ(right.buffer[21], 104);
}

TEST_F(DatagramTest, TheAnswerFindsItsWayBack) {
  receive(right, 1);
  ibv_sge from = left.sge(0, 64);
  ibv_send_wr send = datagram(1, &from);
  ASSERT_EQ(post(left.qp.get(), send), 0);
  auto received = wait_completion(right.cq.get());
  ASSERT_TRUE(received);
  ibv_grh grh;
  std::memcpy(&grh, right.buffer.data(), sizeof grh);

  ibv_ah_attr attr{};
  ASSERT_EQ(ibv_init_ah_from_wc(context(), 1, &*received, &grh, &attr), 0);
  const ibv_ah_attr expected = address(left.qp.get());
  EXPECT_EQ(attr.is_global, 1);
  EXPECT_EQ(std::memcmp(attr.grh.dgid.raw, expected.grh.dgid.raw, 16), 0);
  EXPECT_EQ(attr.grh.sgid_index, expected.grh.sgid_index);
  EXPECT_EQ(attr.grh.traffic_class, 104);

  const Owned<ibv_ah> back = owned(ibv_create_ah_from_wc(pd(), &*received, &grh, 1), ibv_destroy_ah);
  ASSERT_NE(back, nullptr);
  receive(left, 2);
  ibv_sge answer = right.sge(0, 10);
  ibv_send_wr reply = datagram(3, &answer);
  reply.wr.ud.ah = back.get();
  reply.wr.ud.remote_qpn = received->src_qp;
  ASSERT_EQ(post(right.qp.get(), reply), 0);
  ASSERT_TRUE(wait_completion(left.cq.get()));

  received->wc_flags = 0;
  errno = 0;
  EXPECT_EQ(ibv_init_ah_from_wc(context(), 1, &*received, &grh, &attr), -1);
  EXPECT_EQ(errno, EINVAL);
  received->wc_flags = IBV_WC_GRH;
  grh = {};
  EXPECT_EQ(ibv_create_ah_from_wc(pd(), &*received, &grh, 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(DatagramTest, WrongQueueKeyIsCountedAndNotHeard) {
  receive(right, 1);
  ibv_sge from = left.sge(0, 64);
  ibv_send_wr send = datagram(1, &from);
  send.wr.ud.remote_qkey = kQkey + 1;
  ASSERT_EQ(post(left.qp.get(), send), 0);
  ASSERT_TRUE(wait_completion(left.cq.get()));
  send.wr.ud.remote_qkey = 0x80000000;  // the sender's own
  ASSERT_EQ(post(left.qp.get(), send), 0);
  ASSERT_TRUE(wait_completion(right.cq.get()));
  ibv_wc none{};
  EXPECT_EQ(ibv_poll_cq(right.cq.get(), 1, &none), 0);
  std::uint64_t violations = 0;
  ASSERT_EQ(twdv_counter(context(), "qkey_viol_cntr", &violations), 0);
  EXPECT_EQ(violations, 1U);
}

TEST_F(DatagramTest, AddressHandlesAreChecked) {
  const ibv_ah_attr good = address(right.qp.get());
  struct Fault {
    int error;
    void (*plant)(ibv_ah_attr&);
  };
  const Fault faults[] = {
      {EINVAL, [](ibv_ah_attr& attr) { attr.is_global = 0; }},
      {EINVAL, [](ibv_ah_attr& attr) { attr.port_num = 2; }},
      {ENODATA, [](ibv_ah_attr& attr) { attr.grh.sgid_index = 9; }},
  };
  for (const Fault& fault : faults) {
    ibv_ah_attr attr = good;
    fault.plant(attr);
    errno = 0;
    EXPECT_EQ(ibv_create_ah(pd(), &attr), nullptr);
    EXPECT_EQ(errno, fault.error);
  }
}

TEST_F(DatagramTest, PostingNeedsAHandleOfTheSameDomainAndAMessageThatFits) {
  const Owned<ibv_pd> other = owned(ibv_alloc_pd(context()), ibv_dealloc_pd);
  ibv_ah_attr attr = address(right.qp.get());
  const Owned<ibv_ah> foreign = owned(ibv_create_ah(other.get(), &attr), ibv_destroy_ah);
  ASSERT_NE(foreign, nullptr);
  ibv_sge from = left.sge(0, 64);
  ibv_send_wr send = datagram(1, &from);
  send.wr.ud.ah = foreign.get();
  EXPECT_EQ(post(left.qp.get(), send), EINVAL);
  send.wr.ud.ah = nullptr;
  EXPECT_EQ(post(left.qp.get(), send), EINVAL);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context(), 1, &port), 0);
  from.length = (128U << port.active_mtu) + 1;
  send = datagram(1, &from);
  EXPECT_EQ(post(left.qp.get(), send), EINVAL);
  --from.length;
  EXPECT_EQ(post(left.qp.get(), send), 0);
  ASSERT_TRUE(wait_completion(left.cq.get()));
  send.opcode = IBV_WR_RDMA_WRITE;
  EXPECT_EQ(post(left.qp.get(), send), EOPNOTSUPP);
}

TEST_F(DatagramTest, AHandleMayGoBeforeItsRequestHasLeft) {
  receive(right, 1);
  ibv_sge from = left.sge(0, 64);
  ibv_send_wr send = datagram(1, &from);
  ASSERT_EQ(post(left.qp.get(), send), 0);
  ah.reset();
  EXPECT_TRUE(wait_completion(right.cq.get()));
}

TEST_F(DatagramTest, SendErrorStateIsSeenAndLeft) {
  ibv_sge from = left.sge(0, 64);
  from.lkey ^= 1;
  ibv_send_wr send = datagram(1, &from);
  ASSERT_EQ(post(left.qp.get(), send), 0);
  const auto failed = wait_completion(left.cq.get());
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->status, IBV_WC_LOC_PROT_ERR);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(left.qp.get(), &attr, IBV_QP_STATE | IBV_QP_QKEY, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_SQE);
  EXPECT_EQ(attr.qkey, kQkey);
  EXPECT_EQ(init.qp_type, IBV_QPT_UD);
  attr.qp_state = IBV_QPS_RTS;
  attr.cur_qp_state = IBV_QPS_SQE;
  ASSERT_EQ(ibv_modify_qp(left.qp.get(), &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
  from = left.sge(0, 64);
  ASSERT_EQ(post(left.qp.get(), send), 0);
  const auto sent = wait_completion(left.cq.get());
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->status, IBV_WC_SUCCESS);
}

TEST_F(DatagramTest, ManyArriveInOrderOverTheLoopback) {
  std::uint32_t next = 0;
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 8; ++i) receive(right, 1, kGrh + 64);
    for (std::uint32_t i = 0; i < 8; ++i) {
      ibv_sge from = left.sge(0, 64);
      ibv_send_wr send = datagram(1, &from);
      send.opcode = IBV_WR_SEND_WITH_IMM;
      send.imm_data = htonl(static_cast<std::uint32_t>(round) * 8 + i);
      ASSERT_EQ(post(left.qp.get(), send), 0);
    }
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(wait_completion(left.cq.get()));
      const auto received = wait_completion(right.cq.get());
      ASSERT_TRUE(received);
      EXPECT_EQ(ntohl(received->imm_data), next++);
    }
  }
}

TEST_F(DatagramTest, LinkDescriptionSaysPackets) {
  std::array<char, 256> text{};
  ASSERT_EQ(twdv_link_description(left.qp.get(), text.data(), text.size()), 0);
  EXPECT_NE(std::strstr(text.data(), "packets"), nullptr) << text.data();
}

class ExtendedDatagramTest : public DatagramTest {
 protected:
  [[nodiscard]] ibv_qp_init_attr_ex extended(ibv_cq* cq, std::uint64_t ops) const {
    ibv_qp_init_attr_ex wanted{};
    wanted.send_cq = wanted.recv_cq = cq;
    wanted.cap = rc_attributes(cq, cq).cap;
    wanted.qp_type = IBV_QPT_UD;
    wanted.pd = pd();
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    wanted.send_ops_flags = ops;
    return wanted;
  }
  [[nodiscard]] Owned<ibv_qp> make_qp(ibv_cq* cq) override {
    ibv_qp_init_attr_ex wanted = extended(cq, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
    return owned(ibv_create_qp_ex(context(), &wanted), ibv_destroy_qp);
  }
};

TEST_F(ExtendedDatagramTest, NamesTheAddressOfEachRequest) {
  receive(right, 1);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(left.qp.get());
  ASSERT_NE(qp, nullptr);
  ibv_wr_start(qp);
  qp->wr_id = 5;
  qp->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(qp);
  ibv_wr_set_ud_addr(qp, ah.get(), right.qp->qp_num, kQkey);
  ibv_wr_set_sge(qp, left.mr->lkey, left.address(0), 333);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  const auto received = wait_completion(right.cq.get());
  ASSERT_TRUE(received);
  EXPECT_EQ(received->byte_len, kGrh + 333);
  ASSERT_TRUE(wait_completion(left.cq.get()));

  ibv_wr_start(qp);
  ibv_wr_send(qp);
  EXPECT_EQ(ibv_wr_complete(qp), EINVAL);  // no address

  ibv_qp_init_attr_ex wanted = extended(left.cq.get(), IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE);
  errno = 0;
  EXPECT_EQ(ibv_create_qp_ex(context(), &wanted), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace tensorwire::ibverbs::test
