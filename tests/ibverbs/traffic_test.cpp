// Posting and polling between two queue pairs of this process.
#include <arpa/inet.h>

#include <array>
#include <bit>

#include "ibverbs/direct.h"
#include "ibverbs/verbs_fixture.hpp"

namespace tensorwire::ibverbs::test {
namespace {

using TrafficTest = PairTest;

TEST_F(TrafficTest, SendWithImmediateArrivesInOrderOfBytes) {
  ibv_sge into = right.sge(0, 1000);
  ibv_recv_wr receive{.wr_id = 7, .next = nullptr, .sg_list = &into, .num_sge = 1};
  ASSERT_EQ(post(right.qp.get(), receive), 0);
  ibv_sge from = left.sge(100, 1000);
  ibv_send_wr send = request(IBV_WR_SEND_WITH_IMM, 8);
  send.sg_list = &from;
  send.num_sge = 1;
  send.imm_data = htonl(0x01020304);
  ASSERT_EQ(post(left.qp.get(), send), 0);

  const auto sent = wait_completion(left.cq.get());
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent->opcode, IBV_WC_SEND);
  EXPECT_EQ(sent->wr_id, 8U);
  EXPECT_EQ(sent->qp_num, left.qp->qp_num);
  const auto received = wait_completion(right.cq.get());
  ASSERT_TRUE(received);
  EXPECT_EQ(received->status, IBV_WC_SUCCESS);
  EXPECT_EQ(received->opcode, IBV_WC_RECV);
  EXPECT_EQ(received->wr_id, 7U);
  EXPECT_EQ(received->byte_len, 1000U);
  EXPECT_EQ(received->qp_num, right.qp->qp_num);
  EXPECT_TRUE((received->wc_flags & IBV_WC_WITH_IMM) != 0);
  EXPECT_EQ(received->imm_data, htonl(0x01020304));  // network order, as it was given
  EXPECT_EQ(std::memcmp(right.buffer.data(), left.buffer.data() + 100, 1000), 0);
}

TEST_F(TrafficTest, WriteWithImmediateConsumesAReceiveWithoutPieces) {
  ibv_recv_wr receive{.wr_id = 7, .next = nullptr, .sg_list = nullptr, .num_sge = 0};
  ASSERT_EQ(post(right.qp.get(), receive), 0);
  std::array<ibv_sge, 3> pieces{left.sge(0, 10), left.sge(20, 3000), left.sge(5000, 1)};
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE_WITH_IMM, 8);
  write.sg_list = pieces.data();
  write.num_sge = static_cast<int>(pieces.size());
  write.imm_data = htonl(42);
  write.wr.rdma.remote_addr = right.address(64);
  write.wr.rdma.rkey = right.mr->rkey;
  ASSERT_EQ(post(left.qp.get(), write), 0);
  const auto received = wait_completion(right.cq.get());
  ASSERT_TRUE(received);
  EXPECT_EQ(received->status, IBV_WC_SUCCESS);
  EXPECT_EQ(received->opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received->byte_len, 3011U);
  EXPECT_EQ(ntohl(received->imm_data), 42U);
  EXPECT_EQ(std::memcmp(right.buffer.data() + 64, left.buffer.data(), 10), 0);
  EXPECT_EQ(std::memcmp(right.buffer.data() + 74, left.buffer.data() + 20, 3000), 0);
  EXPECT_EQ(right.buffer[64 + 3010], left.buffer[5000]);
  const auto sent = wait_completion(left.cq.get());
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->opcode, IBV_WC_RDMA_WRITE);
}

TEST_F(TrafficTest, InlineDataIsTakenWhenPosted) {
  std::array<std::uint8_t, 32> stack{};
  stack.fill(0x5a);
  ibv_sge from{.addr = reinterpret_cast<std::uint64_t>(stack.data()), .length = stack.size(), .lkey = 0};
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE, 1);
  write.send_flags |= IBV_SEND_INLINE;
  write.sg_list = &from;
  write.num_sge = 1;
  write.wr.rdma.remote_addr = right.address(0);
  write.wr.rdma.rkey = right.mr->rkey;
  ASSERT_EQ(post(left.qp.get(), write), 0);
  stack.fill(0);
  const auto sent = wait_completion(left.cq.get());
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->status, IBV_WC_SUCCESS);
  for (std::size_t i = 0; i < stack.size(); ++i) ASSERT_EQ(right.buffer[i], 0x5a);
}

TEST_F(TrafficTest, UnsignalledRequestCompletesSilently) {
  ibv_send_wr silent = request(IBV_WR_RDMA_WRITE, 1);
  silent.send_flags = 0;
  silent.wr.rdma.remote_addr = right.address(0);
  silent.wr.rdma.rkey = right.mr->rkey;
  ibv_send_wr heard = request(IBV_WR_RDMA_WRITE, 2);
  heard.wr = silent.wr;
  silent.next = &heard;
  ASSERT_EQ(post(left.qp.get(), silent), 0);
  const auto sent = wait_completion(left.cq.get());
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->wr_id, 2U);
  ibv_wc none{};
  EXPECT_EQ(ibv_poll_cq(left.cq.get(), 1, &none), 0);
}

TEST_F(TrafficTest, ChainStopsAtTheBadRequestAndTheRestRuns) {
  std::array<ibv_send_wr, 4> chain{};
  for (std::size_t i = 0; i < chain.size(); ++i) {
    chain[i] = request(IBV_WR_RDMA_WRITE, i);
    chain[i].wr.rdma.remote_addr = right.address(0);
    chain[i].wr.rdma.rkey = right.mr->rkey;
    if (i + 1 < chain.size()) chain[i].next = &chain[i + 1];
  }
  std::array<ibv_sge, 40> too_many{};
  struct Fault {
    const char* name;
    int error;
    void (*plant)(ibv_send_wr&, ibv_sge*);
  };
  const Fault faults[] = {
      {"more pieces than the queue pair takes", EINVAL,
       [](ibv_send_wr& wr, ibv_sge* sges) { wr.sg_list = sges, wr.num_sge = 5; }},
      {"more pieces than any takes", EINVAL,
       [](ibv_send_wr& wr, ibv_sge* sges) { wr.sg_list = sges, wr.num_sge = 40; }},
      {"a negative number of pieces", EINVAL,
       [](ibv_send_wr& wr, ibv_sge* sges) { wr.sg_list = sges, wr.num_sge = -1; }},
      {"an opcode of other hardware", EOPNOTSUPP, [](ibv_send_wr& wr, ibv_sge*) { wr.opcode = IBV_WR_TSO; }},
      {"an unknown opcode", EOPNOTSUPP,
       [](ibv_send_wr& wr, ibv_sge*) { wr.opcode = std::bit_cast<ibv_wr_opcode>(0x100); }},
      {"an atomic that is not of eight bytes", EINVAL,
       [](ibv_send_wr& wr, ibv_sge*) { wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD; }},
      {"an inline READ", EINVAL,
       [](ibv_send_wr& wr, ibv_sge*) { wr.opcode = IBV_WR_RDMA_READ, wr.send_flags |= IBV_SEND_INLINE; }},
  };
  for (const Fault& fault : faults) {
    std::array<ibv_send_wr, 4> posted = chain;
    for (std::size_t i = 0; i + 1 < posted.size(); ++i) posted[i].next = &posted[i + 1];
    fault.plant(posted[2], too_many.data());
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(left.qp.get(), posted.data(), &bad), fault.error) << fault.name;
    EXPECT_EQ(bad, &posted[2]) << fault.name;
    for (std::uint64_t id = 0; id < 2; ++id) {
      const auto sent = wait_completion(left.cq.get());
      ASSERT_TRUE(sent) << fault.name;
      EXPECT_EQ(sent->wr_id, id);
      EXPECT_EQ(sent->status, IBV_WC_SUCCESS);
    }
    ibv_wc none{};
    EXPECT_EQ(ibv_poll_cq(left.cq.get(), 1, &none), 0) << fault.name;
  }
}

TEST_F(TrafficTest, ReadBringsBytesAndCompletesBeforeWhatFollows) {
  std::array<ibv_sge, 2> pieces{right.sge(0, 100), right.sge(200, 20'000)};
  ibv_send_wr read = request(IBV_WR_RDMA_READ, 1);
  read.sg_list = pieces.data();
  read.num_sge = static_cast<int>(pieces.size());
  read.wr.rdma.remote_addr = left.address(5);
  read.wr.rdma.rkey = left.mr->rkey;
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE, 2);
  ibv_sge first = right.sge(0, 100);
  write.sg_list = &first;
  write.num_sge = 1;
  write.send_flags |= IBV_SEND_FENCE;
  write.wr.rdma.remote_addr = left.address(40'000);
  write.wr.rdma.rkey = left.mr->rkey;
  read.next = &write;
  ASSERT_EQ(post(right.qp.get(), read), 0);
  for (const ibv_wc_opcode opcode : {IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE}) {
    const auto done = wait_completion(right.cq.get());
    ASSERT_TRUE(done);
    EXPECT_EQ(done->status, IBV_WC_SUCCESS);
    EXPECT_EQ(done->opcode, opcode);
    EXPECT_EQ(done->byte_len, opcode == IBV_WC_RDMA_READ ? 20'100U : 100U);
  }
  EXPECT_EQ(std::memcmp(right.buffer.data(), left.buffer.data() + 5, 100), 0);
  EXPECT_EQ(std::memcmp(right.buffer.data() + 200, left.buffer.data() + 105, 20'000), 0);
  EXPECT_EQ(std::memcmp(left.buffer.data() + 40'000, left.buffer.data() + 5, 100), 0);  // what the READ had brought
}

TEST_F(TrafficTest, AtomicsWorkOnTheWordAndBringItsOldValue) {
  const std::uint64_t initial = 0x0123456789abcdef;
  std::memcpy(right.buffer.data() + 64, &initial, sizeof initial);
  ibv_sge into = left.sge(0, 8);
  ibv_send_wr add = request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1);
  add.sg_list = &into;
  add.num_sge = 1;
  add.wr.atomic.remote_addr = right.address(64);
  add.wr.atomic.rkey = right.mr->rkey;
  add.wr.atomic.compare_add = 0x10;
  ASSERT_EQ(post(left.qp.get(), add), 0);
  auto done = wait_completion(left.cq.get());
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status, IBV_WC_SUCCESS);
  EXPECT_EQ(done->opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(std::memcmp(left.buffer.data(), &initial, 8), 0);

  ibv_send_wr swap = add;
  swap.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  swap.wr.atomic.compare_add = initial + 0x10;
  swap.wr.atomic.swap = 77;
  ASSERT_EQ(post(left.qp.get(), swap), 0);
  done = wait_completion(left.cq.get());
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status, IBV_WC_SUCCESS);
  EXPECT_EQ(done->opcode, IBV_WC_COMP_SWAP);
  const std::uint64_t seventy_seven = 77;
  EXPECT_EQ(std::memcmp(right.buffer.data() + 64, &seventy_seven, 8), 0);
}

TEST_F(TrafficTest, AReadWithoutTheRightIsARemoteAccessError) {
  std::vector<std::uint8_t> secret(64);
  const Owned<ibv_mr> mr = register_bytes(secret, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  ibv_sge into = left.sge(0, 64);
  ibv_send_wr read = request(IBV_WR_RDMA_READ, 1);
  read.sg_list = &into;
  read.num_sge = 1;
  read.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(secret.data());
  read.wr.rdma.rkey = mr->rkey;
  ASSERT_EQ(post(left.qp.get(), read), 0);
  const auto done = wait_completion(left.cq.get());
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(TrafficTest, ReceiveQueueFillsUp) {
  std::array<ibv_recv_wr, 18> chain{};
  for (std::size_t i = 0; i + 1 < chain.size(); ++i) chain[i].next = &chain[i + 1];
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(right.qp.get(), chain.data(), &bad), ENOMEM);
  EXPECT_EQ(bad, &chain[16]);  // 16 were asked for
  std::array<ibv_sge, 5> pieces{};
  ibv_recv_wr wide{.wr_id = 0, .next = nullptr, .sg_list = pieces.data(), .num_sge = 5};
  EXPECT_EQ(post(right.qp.get(), wide), EINVAL);
  EXPECT_EQ(ibv_post_recv(right.qp.get(), nullptr, &bad), 0);
}

TEST_F(TrafficTest, NothingIsSentBeforeReadyToSend) {
  const Owned<ibv_qp> fresh = make_qp(left.cq.get());
  ibv_send_wr send = request(IBV_WR_SEND, 1);
  EXPECT_EQ(post(fresh.get(), send), EINVAL);
  ibv_recv_wr receive{};
  EXPECT_EQ(post(fresh.get(), receive), EINVAL);
  ASSERT_EQ(to_init(fresh.get()), 0);
  EXPECT_EQ(post(fresh.get(), send), EINVAL);
  EXPECT_EQ(post(fresh.get(), receive), 0);
}

TEST_F(TrafficTest, WrongKeyIsARemoteAccessErrorAndFlushesTheRest) {
  ibv_send_wr write = request(IBV_WR_RDMA_WRITE, 1);
  ibv_sge from = left.sge(0, 64);
  write.sg_list = &from;
  write.num_sge = 1;
  write.wr.rdma.remote_addr = right.address(0);
  write.wr.rdma.rkey = right.mr->rkey ^ 1;
  ibv_send_wr behind = request(IBV_WR_RDMA_WRITE, 2);
  behind.send_flags = 0;  // flushed requests are told all the same
  write.next = &behind;
  ASSERT_EQ(post(left.qp.get(), write), 0);
  const auto failed = wait_completion(left.cq.get());
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->status, IBV_WC_REM_ACCESS_ERR) << ibv_wc_status_str(failed->status);
  EXPECT_EQ(failed->wr_id, 1U);
  const auto flushed = wait_completion(left.cq.get());
  ASSERT_TRUE(flushed);
  EXPECT_EQ(flushed->status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed->wr_id, 2U);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(left.qp.get(), &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
}

TEST_F(TrafficTest, PollTakesNoMoreThanAsked) {
  for (std::uint64_t id = 0; id < 5; ++id) {
    ibv_send_wr write = request(IBV_WR_RDMA_WRITE, id);
    write.wr.rdma.remote_addr = right.address(0);
    write.wr.rdma.rkey = right.mr->rkey;
    ASSERT_EQ(post(left.qp.get(), write), 0);
  }
  std::array<ibv_wc, 8> wc{};
  EXPECT_EQ(ibv_poll_cq(left.cq.get(), 0, wc.data()), 0);
  std::uint64_t next = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (next < 5 && std::chrono::steady_clock::now() < deadline) {
    const int count = ibv_poll_cq(left.cq.get(), 2, wc.data());
    ASSERT_LE(count, 2);
    for (int i = 0; i < count; ++i) EXPECT_EQ(wc[static_cast<std::size_t>(i)].wr_id, next++);
  }
  EXPECT_EQ(next, 5U);
}

TEST_F(TrafficTest, LinkDescriptionSaysHowPacketsTravel) {
  std::array<char, 256> text{};
  ASSERT_EQ(twdv_link_description(left.qp.get(), text.data(), text.size()), 0);
  EXPECT_GT(std::strlen(text.data()), 4U);
  std::array<char, 4> narrow{'x', 'x', 'x', 'x'};
  ASSERT_EQ(twdv_link_description(left.qp.get(), narrow.data(), narrow.size()), 0);
  EXPECT_EQ(std::strlen(narrow.data()), 3U);
  EXPECT_EQ(twdv_link_description(left.qp.get(), narrow.data(), 0), EINVAL);
}

TEST_F(TrafficTest, LinkCanBeChosenBeforeReadyToReceiveOnly) {
  EXPECT_EQ(twdv_set_link(left.qp.get(), TWDV_LINK_PACKETS), EINVAL);
  const Owned<ibv_qp> fresh = make_qp(left.cq.get());
  EXPECT_EQ(twdv_set_link(fresh.get(), std::bit_cast<twdv_link>(7)), EINVAL);
  EXPECT_EQ(twdv_set_link(fresh.get(), TWDV_LINK_PACKETS), 0);
  connect(fresh.get(), right.qp.get());
  std::array<char, 256> text{};
  ASSERT_EQ(twdv_link_description(fresh.get(), text.data(), text.size()), 0);
  EXPECT_NE(std::strstr(text.data(), "packets"), nullptr) << text.data();
}

TEST_F(TrafficTest, CountersHaveTheNamesOfMlx5) {
  std::uint64_t value = 0;
  EXPECT_EQ(twdv_counter(context(), "out_of_sequence", &value), 0);
  EXPECT_EQ(twdv_counter(context(), "local_ack_timeout_err", &value), 0);
  EXPECT_EQ(twdv_counter(context(), "no_such_counter", &value), ENOENT);
}

}  // namespace
}  // namespace tensorwire::ibverbs::test
