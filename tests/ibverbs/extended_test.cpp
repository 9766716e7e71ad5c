// The extended interfaces: ibv_wr_* to post, start_poll/next_poll/read_* to poll.
#include <arpa/inet.h>

#include <array>
#include <thread>

#include "ibverbs/verbs_fixture.hpp"

namespace tensorwire::ibverbs::test {
namespace {

class ExtendedTest : public PairTest {
 protected:
  [[nodiscard]] Owned<ibv_qp> make_qp(ibv_cq* cq) override {
    const ibv_qp_init_attr plain = rc_attributes(cq, cq);
    ibv_qp_init_attr_ex wanted{};
    wanted.send_cq = wanted.recv_cq = cq;
    wanted.cap = plain.cap;
    wanted.qp_type = IBV_QPT_RC;
    wanted.pd = pd();
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    wanted.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
                            IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                            IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    return owned(ibv_create_qp_ex(context(), &wanted), ibv_destroy_qp);
  }

  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    qp_ = ibv_qp_to_qp_ex(left.qp.get());
    ASSERT_NE(qp_, nullptr);
    ASSERT_EQ(&qp_->qp_base, left.qp.get());
  }

  void begin(std::uint64_t wr_id) {
    qp_->wr_id = wr_id;
    qp_->wr_flags = IBV_SEND_SIGNALED;
  }

  [[nodiscard]] Owned<ibv_cq> make_cq_ex(std::uint32_t flags = 0) {
    ibv_cq_init_attr_ex wanted{};
    wanted.cqe = 32;
    wanted.wc_flags = IBV_WC_STANDARD_FLAGS;
    wanted.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    wanted.flags = flags;
    ibv_cq_ex* cq = ibv_create_cq_ex(context(), &wanted);
    return owned(cq == nullptr ? nullptr : ibv_cq_ex_to_cq(cq), ibv_destroy_cq);
  }

  ibv_qp_ex* qp_ = nullptr;
};

TEST_F(ExtendedTest, EveryFunctionIsSet) {
  const auto* slots = reinterpret_cast<void* const*>(&qp_->wr_atomic_cmp_swp);
  const auto* end = reinterpret_cast<void* const*>(qp_ + 1);
  for (; slots < end; ++slots) EXPECT_NE(*slots, nullptr);
}

TEST_F(ExtendedTest, BatchOfEveryOperation) {
  std::array<ibv_recv_wr, 3> receives{};
  ibv_sge into = right.sge(40000, 512);
  receives[0].wr_id = 100;
  receives[1] = {.wr_id = 101, .next = nullptr, .sg_list = &into, .num_sge = 1};
  receives[2].wr_id = 102;
  for (ibv_recv_wr& receive : receives) ASSERT_EQ(post(right.qp.get(), receive), 0);

  std::array<char, 8> first{'i', 'n', 'l', 'i', 'n', 'e', ' ', '1'};
  std::array<char, 4> second{'a', 'n', 'd', '2'};
  const ibv_data_buf buffers[] = {{first.data(), first.size()}, {second.data(), second.size()}};
  const ibv_sge pieces[] = {left.sge(0, 300), left.sge(1000, 200)};

  ibv_wr_start(qp_);
  begin(1);
  ibv_wr_rdma_write(qp_, right.mr->rkey, right.address(0));
  ibv_wr_set_sge(qp_, left.mr->lkey, left.address(0), 5000);
  begin(2);
  ibv_wr_rdma_write_imm(qp_, right.mr->rkey, right.address(10000), htonl(77));
  ibv_wr_set_inline_data_list(qp_, 2, buffers);
  begin(3);
  ibv_wr_send_imm(qp_, htonl(78));
  ibv_wr_set_sge_list(qp_, 2, pieces);
  begin(4);
  ibv_wr_send(qp_);
  ibv_wr_set_sge_list(qp_, 0, nullptr);
  first.fill('x');  // inline data was taken
  second.fill('x');
  ASSERT_EQ(ibv_wr_complete(qp_), 0);

  for (std::uint64_t id = 1; id <= 4; ++id) {
    const auto sent = wait_completion(left.cq.get());
    ASSERT_TRUE(sent);
    EXPECT_EQ(sent->status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent->wr_id, id);
  }
  const std::uint32_t lengths[] = {12, 500, 0};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto received = wait_completion(right.cq.get());
    ASSERT_TRUE(received);
    EXPECT_EQ(received->status, IBV_WC_SUCCESS);
    EXPECT_EQ(received->wr_id, 100 + i);
    EXPECT_EQ(received->byte_len, lengths[i]);
    if (i == 2) break;
    EXPECT_EQ(ntohl(received->imm_data), 77 + i);
  }
  EXPECT_EQ(std::memcmp(right.buffer.data(), left.buffer.data(), 5000), 0);
  EXPECT_EQ(std::memcmp(right.buffer.data() + 10000, "inline 1and2", 12), 0);
  EXPECT_EQ(std::memcmp(right.buffer.data() + 40000, left.buffer.data(), 300), 0);
  EXPECT_EQ(std::memcmp(right.buffer.data() + 40300, left.buffer.data() + 1000, 200), 0);
}

TEST_F(ExtendedTest, ReadAndAtomicsInABatch) {
  const std::uint64_t initial = 40;
  std::memcpy(right.buffer.data() + 128, &initial, sizeof initial);
  ibv_wr_start(qp_);
  begin(1);
  ibv_wr_atomic_fetch_add(qp_, right.mr->rkey, right.address(128), 2);
  ibv_wr_set_sge(qp_, left.mr->lkey, left.address(0), 8);
  begin(2);
  ibv_wr_atomic_cmp_swp(qp_, right.mr->rkey, right.address(128), 42, 43);
  ibv_wr_set_sge(qp_, left.mr->lkey, left.address(8), 8);
  begin(3);
  ibv_wr_rdma_read(qp_, right.mr->rkey, right.address(128));
  ibv_wr_set_sge(qp_, left.mr->lkey, left.address(16), 8);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  const ibv_wc_opcode opcodes[] = {IBV_WC_FETCH_ADD, IBV_WC_COMP_SWAP, IBV_WC_RDMA_READ};
  for (std::uint64_t id = 1; id <= 3; ++id) {
    const auto done = wait_completion(left.cq.get());
    ASSERT_TRUE(done);
    EXPECT_EQ(done->status, IBV_WC_SUCCESS);
    EXPECT_EQ(done->wr_id, id);
    EXPECT_EQ(done->opcode, opcodes[id - 1]);
  }
  const std::uint64_t expected[] = {40, 42, 43};
  EXPECT_EQ(std::memcmp(left.buffer.data(), expected, sizeof expected), 0);
}

TEST_F(ExtendedTest, AbortedBatchIsNotSent) {
  ibv_wr_start(qp_);
  begin(1);
  ibv_wr_rdma_write(qp_, right.mr->rkey, right.address(0));
  ibv_wr_set_sge(qp_, left.mr->lkey, left.address(0), 100);
  ibv_wr_abort(qp_);
  ibv_wr_start(qp_);
  begin(2);
  ibv_wr_rdma_write(qp_, right.mr->rkey, right.address(1000));
  ibv_wr_set_sge(qp_, left.mr->lkey, left.address(0), 100);
  ASSERT_EQ(ibv_wr_complete(qp_), 0);
  const auto sent = wait_completion(left.cq.get());
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->wr_id, 2U);
  EXPECT_EQ(right.buffer[1], 0);
}

TEST_F(ExtendedTest, OneBadRequestStopsTheBatch) {
  const auto outcome = [&](auto&& bad) {
    ibv_wr_start(qp_);
    begin(1);
    ibv_wr_rdma_write(qp_, right.mr->rkey, right.address(0));
    bad();
    begin(3);
    ibv_wr_rdma_write(qp_, right.mr->rkey, right.address(0));
    return ibv_wr_complete(qp_);
  };
  std::array<std::uint8_t, 100> bytes{};
  std::array<ibv_sge, 5> many{};
  EXPECT_EQ(outcome([&] { ibv_wr_set_inline_data(qp_, bytes.data(), bytes.size()); }), EINVAL);
  EXPECT_EQ(outcome([&] { ibv_wr_set_sge_list(qp_, many.size(), many.data()); }), EINVAL);
  EXPECT_EQ(outcome([&] { ibv_wr_atomic_fetch_add(qp_, 0, 0, 0); }), EINVAL) << "no room for the old value";
  EXPECT_EQ(outcome([&] { ibv_wr_atomic_write(qp_, 0, 0, bytes.data()); }), EOPNOTSUPP);
  EXPECT_EQ(outcome([&] { ibv_wr_set_ud_addr(qp_, nullptr, 0, 0); }), EINVAL);
  EXPECT_EQ(outcome([&] {
              for (int i = 0; i < 16; ++i) ibv_wr_send(qp_);
            }),
            ENOMEM);
  ibv_wc none{};
  EXPECT_EQ(ibv_poll_cq(left.cq.get(), 1, &none), 0);
}

/// The pause of SQD keeps requests in the queue.
class FullQueueTest : public ExtendedTest {
 protected:
  void turn(ibv_qp_state state) {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    ASSERT_EQ(ibv_modify_qp(left.qp.get(), &attr, IBV_QP_STATE), 0);
  }
  /// Writes of 8 bytes, each to a place of its own, then `last`.
  template <class Last>
  int batch(std::uint64_t first_id, std::uint64_t count, Last&& last) {
    ibv_wr_start(qp_);
    for (std::uint64_t id = first_id; id < first_id + count; ++id) {
      begin(id);
      ibv_wr_rdma_write(qp_, right.mr->rkey, right.address(8 * id));
      ibv_wr_set_sge(qp_, left.mr->lkey, left.address(8 * id), 8);
    }
    last();
    return ibv_wr_complete(qp_);
  }
  int batch(std::uint64_t first_id, std::uint64_t count) {
    return batch(first_id, count, [] {});
  }
  /// Of this id and the next ones, in order; then there are none.
  void expect_done(std::uint64_t first_id, std::uint64_t count) {
    for (std::uint64_t id = first_id; id < first_id + count; ++id) {
      const auto done = wait_completion(left.cq.get());
      ASSERT_TRUE(done);
      EXPECT_EQ(done->wr_id, id);
      EXPECT_EQ(done->status, IBV_WC_SUCCESS);
    }
    ibv_wc none{};
    EXPECT_EQ(ibv_poll_cq(left.cq.get(), 1, &none), 0);
  }
};

TEST_F(FullQueueTest, ABatchThatDoesNotFitIsNotPostedInPart) {
  turn(IBV_QPS_SQD);
  ASSERT_EQ(batch(0, 10), 0);
  EXPECT_EQ(batch(100, 7), ENOMEM) << "16 in all";
  EXPECT_EQ(batch(200, 17), ENOMEM);
  ASSERT_EQ(batch(10, 6), 0);
  EXPECT_EQ(batch(300, 1), ENOMEM);
  turn(IBV_QPS_RTS);
  expect_done(0, 16);
  ASSERT_EQ(batch(0, 16), 0) << "there is room again";
  expect_done(0, 16);
}

TEST_F(FullQueueTest, ABatchWithAMessageThatIsTooLongIsNotPostedInPart) {
  const std::vector<std::uint8_t> before = right.buffer;
  const ibv_sge halves[] = {{left.address(0), 0x60000000, left.mr->lkey}, {left.address(0), 0x60000000, left.mr->lkey}};
  EXPECT_EQ(batch(0, 3,
                  [&] {
                    begin(3);
                    ibv_wr_rdma_write(qp_, right.mr->rkey, right.address(0));
                    ibv_wr_set_sge_list(qp_, 2, halves);
                  }),
            EINVAL);
  ASSERT_EQ(batch(50, 1), 0) << "the next one is as any other";
  expect_done(50, 1);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 400, right.buffer.begin()));
}

/// ibv_post_send, by contrast: what comes before the bad one is posted, which bad_wr names.
TEST_F(FullQueueTest, AListIsPostedUpToTheBadOne) {
  ibv_sge piece = left.sge(0, 8);
  ibv_sge halves[] = {{left.address(0), 0x60000000, left.mr->lkey}, {left.address(0), 0x60000000, left.mr->lkey}};
  std::array<ibv_send_wr, 4> list{};
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i] = request(IBV_WR_RDMA_WRITE, i);
    list[i].sg_list = i == 2 ? halves : &piece;
    list[i].num_sge = i == 2 ? 2 : 1;
    list[i].wr.rdma = {right.address(0), right.mr->rkey};
    list[i].next = i + 1 == list.size() ? nullptr : &list[i + 1];
  }
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(left.qp.get(), list.data(), &bad), EINVAL);
  EXPECT_EQ(bad, &list[2]);
  expect_done(0, 2);
}

TEST_F(ExtendedTest, PollReadsEveryFieldOfEachCompletion) {
  for (const std::uint32_t flags : {0U, std::uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED}}) {
    const Owned<ibv_cq> cq = make_cq_ex(flags);
    ASSERT_NE(cq, nullptr);
    auto* extended = reinterpret_cast<ibv_cq_ex*>(cq.get());
    ibv_poll_cq_attr none{};
    EXPECT_EQ(ibv_start_poll(extended, &none), ENOENT);
    EXPECT_EQ(ibv_start_poll(extended, &none), ENOENT);  // the lock was given back
    ibv_poll_cq_attr unknown{.comp_mask = 1};
    EXPECT_EQ(ibv_start_poll(extended, &unknown), EINVAL);

    const Owned<ibv_qp> receiver = make_qp(cq.get());
    const Owned<ibv_qp> sender = make_qp(left.cq.get());
    connect(receiver.get(), sender.get());
    connect(sender.get(), receiver.get());
    for (std::uint64_t id = 0; id < 3; ++id) {
      ibv_recv_wr receive{.wr_id = id, .next = nullptr, .sg_list = nullptr, .num_sge = 0};
      ASSERT_EQ(post(receiver.get(), receive), 0);
      ibv_sge from = left.sge(0, 10 + id);
      ibv_send_wr write = request(IBV_WR_RDMA_WRITE_WITH_IMM, id);
      write.sg_list = &from;
      write.num_sge = 1;
      write.imm_data = htonl(static_cast<std::uint32_t>(1000 + id));
      write.wr.rdma.remote_addr = right.address(0);
      write.wr.rdma.rkey = right.mr->rkey;
      ASSERT_EQ(post(sender.get(), write), 0);
      ASSERT_TRUE(wait_completion(left.cq.get()));
    }
    std::uint64_t next = 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (next < 3 && std::chrono::steady_clock::now() < deadline) {
      if (ibv_start_poll(extended, &none) != 0) continue;
      do {
        EXPECT_EQ(extended->wr_id, next);
        EXPECT_EQ(extended->status, IBV_WC_SUCCESS);
        EXPECT_EQ(ibv_wc_read_opcode(extended), IBV_WC_RECV_RDMA_WITH_IMM);
        EXPECT_EQ(ibv_wc_read_byte_len(extended), 10 + next);
        EXPECT_EQ(ibv_wc_read_imm_data(extended), htonl(static_cast<std::uint32_t>(1000 + next)));
        EXPECT_EQ(ibv_wc_read_qp_num(extended), receiver->qp_num);
        EXPECT_TRUE((ibv_wc_read_wc_flags(extended) & IBV_WC_WITH_IMM) != 0);
        EXPECT_EQ(ibv_wc_read_vendor_err(extended), 0U);
        EXPECT_EQ(ibv_wc_read_sl(extended), 0);
        ++next;
      } while (ibv_next_poll(extended) == 0);
      ibv_end_poll(extended);
    }
    EXPECT_EQ(next, 3U);
  }
}

TEST_F(ExtendedTest, EveryReaderIsSet) {
  const Owned<ibv_cq> cq = make_cq_ex();
  const auto* extended = reinterpret_cast<const ibv_cq_ex*>(cq.get());
  const auto* slots = reinterpret_cast<void* const*>(&extended->start_poll);
  const auto* end = reinterpret_cast<void* const*>(extended + 1);
  for (; slots < end; ++slots) EXPECT_NE(*slots, nullptr);
}

TEST_F(ExtendedTest, UnknownFieldsAndFlagsAreRefused) {
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = 32;
  wanted.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  errno = 0;
  EXPECT_EQ(ibv_create_cq_ex(context(), &wanted), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  wanted.wc_flags = 0;
  wanted.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  EXPECT_EQ(ibv_create_cq_ex(context(), &wanted), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  wanted.comp_mask = 0;
  wanted.cqe = 0;
  EXPECT_EQ(ibv_create_cq_ex(context(), &wanted), nullptr);
  EXPECT_EQ(errno, EINVAL);
  wanted.cqe = 8;
  wanted.comp_vector = 1000;
  EXPECT_EQ(ibv_create_cq_ex(context(), &wanted), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace tensorwire::ibverbs::test
