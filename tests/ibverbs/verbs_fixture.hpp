// What most tests of the drop-in need: an open device with a protection domain, and a pair of connected RC queue pairs
// on it.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

namespace tensorwire::ibverbs::test {

/// Calls a destroy verb when it goes out of scope; a failure fails the test.
template <typename T>
struct Destroy {
  int (*verb)(T*);
  void operator()(T* object) const { EXPECT_EQ(verb(object), 0); }
};
template <typename T>
using Owned = std::unique_ptr<T, Destroy<T>>;

template <typename T>
[[nodiscard]] Owned<T> owned(T* object, int (*verb)(T*)) {
  return Owned<T>(object, Destroy<T>{verb});
}

inline constexpr int kAllAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// soft0, the loopback interface.
[[nodiscard]] inline Owned<ibv_context> open_first_device() {
  ibv_device** list = ibv_get_device_list(nullptr);
  EXPECT_NE(list, nullptr);
  EXPECT_NE(list[0], nullptr);
  ibv_context* context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  return owned(context, ibv_close_device);
}

/// The index of the first GID that is not empty.
[[nodiscard]] inline std::uint8_t usable_gid_index(ibv_context* context) {
  ibv_gid_entry entry{};
  for (std::uint32_t index = 0; index < 16; ++index) {
    if (ibv_query_gid_ex(context, 1, index, &entry, 0) == 0) return static_cast<std::uint8_t>(index);
  }
  ADD_FAILURE() << "no GID";
  return 0;
}

/// Polls until a completion comes, for at most five seconds.
[[nodiscard]] inline std::optional<ibv_wc> wait_completion(ibv_cq* cq) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  ibv_wc wc{};
  do {
    if (ibv_poll_cq(cq, 1, &wc) == 1) return wc;
  } while (std::chrono::steady_clock::now() < deadline);
  return std::nullopt;
}

[[nodiscard]] inline ibv_qp_init_attr rc_attributes(ibv_cq* send_cq, ibv_cq* recv_cq) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = send_cq;
  attributes.recv_cq = recv_cq;
  attributes.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 64};
  attributes.qp_type = IBV_QPT_RC;
  return attributes;
}

struct Address {
  ibv_gid gid{};
  std::uint8_t gid_index = 0;
  std::uint32_t qpn = 0;
};

[[nodiscard]] inline int to_init(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

inline constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
inline constexpr int kRtsMask =
    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

[[nodiscard]] inline ibv_qp_attr rtr_attributes(const Address& peer, std::uint8_t own_gid_index) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = 0x123456;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = peer.gid;
  attr.ah_attr.grh.sgid_index = own_gid_index;
  attr.ah_attr.grh.hop_limit = 64;
  attr.ah_attr.grh.traffic_class = 104;
  return attr;
}

[[nodiscard]] inline ibv_qp_attr rts_attributes() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = 0x123456;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  return attr;
}

class VerbsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    context_ = open_first_device();
    ASSERT_NE(context_, nullptr);
    pd_ = owned(ibv_alloc_pd(context()), ibv_dealloc_pd);
    ASSERT_NE(pd_, nullptr);
  }

  [[nodiscard]] ibv_context* context() const { return context_.get(); }
  [[nodiscard]] ibv_pd* pd() const { return pd_.get(); }

  [[nodiscard]] Owned<ibv_cq> make_cq(int entries = 64, ibv_comp_channel* channel = nullptr) const {
    return owned(ibv_create_cq(context(), entries, nullptr, channel, 0), ibv_destroy_cq);
  }

  [[nodiscard]] Owned<ibv_mr> register_bytes(std::vector<std::uint8_t>& bytes, int access = kAllAccess) const {
    return owned(ibv_reg_mr(pd(), bytes.data(), bytes.size(), access), ibv_dereg_mr);
  }

  [[nodiscard]] Address address_of(const ibv_qp* qp) const {
    Address address{.gid = {}, .gid_index = usable_gid_index(context()), .qpn = qp->qp_num};
    EXPECT_EQ(ibv_query_gid(context(), 1, address.gid_index, &address.gid), 0);
    return address;
  }

  void connect(ibv_qp* qp, const ibv_qp* peer) const {
    const Address there = address_of(peer);
    ibv_qp_attr rtr = rtr_attributes(there, there.gid_index);
    ibv_qp_attr rts = rts_attributes();
    ASSERT_EQ(to_init(qp), 0);
    ASSERT_EQ(ibv_modify_qp(qp, &rtr, kRtrMask), 0);
    ASSERT_EQ(ibv_modify_qp(qp, &rts, kRtsMask), 0);
  }

 private:
  Owned<ibv_context> context_;
  Owned<ibv_pd> pd_;
};

/// Two connected queue pairs of one process, each with its own completion queue and registered buffer.
class PairTest : public VerbsTest {
 protected:
  static constexpr std::size_t kBufferBytes = 64 * 1024;

  struct Side {
    std::vector<std::uint8_t> buffer = std::vector<std::uint8_t>(kBufferBytes);
    Owned<ibv_mr> mr;
    Owned<ibv_cq> cq;
    Owned<ibv_qp> qp;

    [[nodiscard]] ibv_sge sge(std::size_t offset, std::size_t length) {
      return {.addr = reinterpret_cast<std::uint64_t>(buffer.data() + offset),
              .length = static_cast<std::uint32_t>(length),
              .lkey = mr->lkey};
    }
    [[nodiscard]] std::uint64_t address(std::size_t offset) const {
      return reinterpret_cast<std::uint64_t>(buffer.data() + offset);
    }
  };

  void SetUp() override {
    VerbsTest::SetUp();
    for (Side* side : {&left, &right}) {
      side->mr = register_bytes(side->buffer);
      ASSERT_NE(side->mr, nullptr);
      side->cq = make_cq();
      ASSERT_NE(side->cq, nullptr);
      side->qp = make_qp(side->cq.get());
      ASSERT_NE(side->qp, nullptr);
    }
    connect(left.qp.get(), right.qp.get());
    connect(right.qp.get(), left.qp.get());
    for (std::size_t i = 0; i < kBufferBytes; ++i) left.buffer[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  }

  /// Overridden where the queue pair is made in another way.
  [[nodiscard]] virtual Owned<ibv_qp> make_qp(ibv_cq* cq) {
    ibv_qp_init_attr attributes = rc_attributes(cq, cq);
    return owned(ibv_create_qp(pd(), &attributes), ibv_destroy_qp);
  }

  [[nodiscard]] static int post(ibv_qp* qp, ibv_send_wr& wr) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
  }
  [[nodiscard]] static int post(ibv_qp* qp, ibv_recv_wr& wr) {
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &wr, &bad);
  }
  /// A signalled request without data.
  [[nodiscard]] static ibv_send_wr request(ibv_wr_opcode opcode, std::uint64_t wr_id) {
    ibv_send_wr wr{};
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    return wr;
  }

  Side left, right;
};

}  // namespace tensorwire::ibverbs::test
