// The whole room on the user-space HCA, loaded at run time: choice, bring-up, write with immediate, errors.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/error.hpp"
#include "verbs/completion_queue.hpp"
#include "verbs/context.hpp"
#include "verbs/gpudirect_mr.hpp"
#include "verbs/queue_pair.hpp"
#include "verbs/rdma_write.hpp"
#include "verbs/roce_qp.hpp"

namespace tensorwire::verbs {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

constexpr std::size_t kBufferBytes = 256U << 10;
constexpr WaitPolicy kPatience{.bound = 5 * kSecond, .spin = 50 * kMicrosecond};

std::shared_ptr<Context> open_soft(std::optional<int> gid_index = {}) {
  return Context::open({.device = "soft0", .gid_index = gid_index, .route_to = {}});
}

template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// One end of a connection with its memory.
struct End {
  explicit End(std::shared_ptr<Context> opened, const QpOptions& options = {}) : context(std::move(opened)) {
    std::iota(buffer.begin(), buffer.end(), std::uint8_t{0});
    domain = ProtectionDomain::create(context);
    queue = CompletionQueue::create(context, 256);
    qp = QueuePair::create(domain, queue, queue, options);
    region = register_gpu_memory_with_hca(domain, {.address = buffer.data(), .length = buffer.size()},
                                          {.local_write = true, .remote_write = true, .remote_read = false});
  }

  [[nodiscard]] WriteRequest write_to(const End& peer, std::uint32_t length, std::uint32_t immediate) const {
    WriteRequest request;
    request.local_address = region.address();
    request.local_key = region.lkey();
    request.length = length;
    request.remote_address = peer.region.address();
    request.remote_key = peer.region.rkey();
    request.immediate = immediate;
    return request;
  }

  ibv_wc completion() const {
    ibv_wc wc{};
    EXPECT_EQ(queue->wait({&wc, 1}, kPatience), 1);
    return wc;
  }

  std::vector<std::uint8_t> buffer = std::vector<std::uint8_t>(kBufferBytes);
  std::shared_ptr<Context> context;
  std::shared_ptr<ProtectionDomain> domain;
  std::shared_ptr<CompletionQueue> queue;
  std::unique_ptr<QueuePair> qp;
  MemoryRegion region;
};

TEST(SoftContext, SaysWhatWasChosenAndWhy) {
  const auto context = open_soft();
  EXPECT_TRUE(context->is_soft());
  const std::string line = context->describe();
  for (const char* part : {"soft0", "user-space HCA", "asked for", "::ffff:127.", "RoCE v2", "MTU"})
    EXPECT_HAS(line, part);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_TRUE(context->gid().is_ipv4());
}

TEST(SoftContext, TheEnvironmentFillsWhatTheWishLeavesOpen) {
  setenv("TENSORWIRE_DEVICE", "soft77", 1);
  EXPECT_HAS(error_of([] { (void)Context::open({}); }), "soft77");
  EXPECT_TRUE(open_soft()->is_soft()) << "the wish comes first";
  setenv("TENSORWIRE_DEVICE", "soft", 1);
  setenv("TENSORWIRE_GID_INDEX", "99", 1);
  EXPECT_HAS(error_of([] { (void)Context::open({}); }), "GID index 99");
  unsetenv("TENSORWIRE_DEVICE");
  unsetenv("TENSORWIRE_GID_INDEX");
}

TEST(SoftContext, WrongWishesAreNamed) {
  EXPECT_HAS(error_of([] { (void)Context::open({.device = "soft99", .gid_index = {}, .route_to = {}}); }), "soft99");
  EXPECT_HAS(error_of([] { (void)Context::open({.device = "soft0:2", .gid_index = {}, .route_to = {}}); }),
             "no port 2");
  EXPECT_HAS(error_of([] { (void)Context::open({.device = "soft0:x", .gid_index = {}, .route_to = {}}); }), "soft0:x");
  EXPECT_HAS(error_of([] { (void)open_soft(7); }), "GID index 7");
  setenv("TENSORWIRE_SOFT_LIBRARY", "/no/such/libibverbs.so.1", 1);
  EXPECT_HAS(error_of([] { (void)open_soft(); }), "/no/such/libibverbs.so.1");
  unsetenv("TENSORWIRE_SOFT_LIBRARY");
}

TEST(SoftContext, ALoopbackRouteChoosesTheLoopbackDevice) {
  const auto context = Context::open({.device = "soft", .gid_index = {}, .route_to = parse_gid("127.0.0.1")});
  EXPECT_EQ(context->name(), "soft0");
}

TEST(SoftContext, Counters) {
  const auto context = open_soft();
  EXPECT_TRUE(context->counter("out_of_sequence"));
  EXPECT_FALSE(context->counter("no_such_counter"));
}

TEST(SoftMemory, ErrorsNameSizeAndRemedy) {
  const auto domain = ProtectionDomain::create(open_soft());
  EXPECT_HAS(error_of([&] { (void)register_gpu_memory_with_hca(domain, {.address = &errno, .length = 0}, {}); }),
             "empty");
  const auto unmapped = [&] {
    (void)register_gpu_memory_with_hca(domain, {.address = reinterpret_cast<void*>(0x1000), .length = 65536}, {});
  };
  EXPECT_HAS(error_of(unmapped), "64KiB of host memory");
  EXPECT_HAS(error_of(unmapped), "EFAULT");
  const auto dmabuf = [&] {
    (void)register_gpu_memory_with_hca(
        domain, {.address = nullptr, .length = 4096, .kind = MemoryKind::kDmaBuf, .dmabuf_fd = 0, .dmabuf_offset = 0},
        {});
  };
  EXPECT_HAS(error_of(dmabuf), "EOPNOTSUPP");
}

class Writes : public ::testing::TestWithParam<SameHostLink> {
 protected:
  void SetUp() override {
    QpOptions options;
    options.link = GetParam();
    const auto context = open_soft();
    a = std::make_unique<End>(context, options);
    b = std::make_unique<End>(context, options);
    EXPECT_EQ(b->qp->post_empty_receive(7), EINVAL) << "a queue pair in RESET takes no receives";
    transition_qp_to_rts(*b->qp, a->qp->address(), {});
    ASSERT_EQ(b->qp->post_empty_receives(7, 64), 0);
    transition_qp_to_rts(*a->qp, b->qp->address(), {});
  }

  std::unique_ptr<End> a, b;
};

TEST_P(Writes, TheBytesAreInWhenTheImmediateComes) {
  for (const std::uint32_t length : {0U, 1U, 64U, 65U, 4096U, 4097U, 131072U, 262144U}) {
    std::ranges::fill(b->buffer, std::uint8_t{0xee});
    ASSERT_EQ(post_gpudirect_rdma_write(*a->qp, a->write_to(*b, length, 0x01020304U + length)), 0);
    const ibv_wc arrival = b->completion();
    ASSERT_EQ(arrival.status, IBV_WC_SUCCESS) << length;
    EXPECT_EQ(arrival.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(arrival.wr_id, 7U);
    EXPECT_EQ(arrival.qp_num, b->qp->qpn());
    EXPECT_EQ(immediate_of(arrival), 0x01020304U + length);
    EXPECT_EQ(std::memcmp(a->buffer.data(), b->buffer.data(), length), 0) << length;
    EXPECT_TRUE(length == kBufferBytes || b->buffer[length] == 0xee) << "nothing behind the range is touched";
    EXPECT_EQ(a->completion().status, IBV_WC_SUCCESS);
  }
}

TEST_P(Writes, UnsignaledAndSilentOnesCompleteNowhere) {
  WriteRequest request = a->write_to(*b, 1000, 1);
  request.signaled = false;
  ASSERT_EQ(post_rdma_write_silent(*a->qp, request), 0);
  ASSERT_EQ(post_gpudirect_rdma_write(*a->qp, request), 0);
  EXPECT_EQ(immediate_of(b->completion()), 1U);
  ibv_wc none{};
  EXPECT_EQ(a->queue->wait({&none, 1}, {.bound = 20 * kMillisecond, .spin = 0}), 0);
  EXPECT_EQ(b->queue->wait({&none, 1}, {.bound = 0, .spin = 0}), 0);
}

TEST_P(Writes, SleepersAreWokenThroughTheChannel) {
  for (std::uint32_t i = 0; i < 200; ++i) {
    ASSERT_EQ(b->qp->post_empty_receive(7), 0);
    ASSERT_EQ(post_gpudirect_rdma_write(*a->qp, a->write_to(*b, 64, i)), 0);
    ibv_wc wc{};
    ASSERT_EQ(b->queue->wait({&wc, 1}, {.bound = 5 * kSecond, .spin = 0}), 1);
    EXPECT_EQ(immediate_of(wc), i);
    ASSERT_EQ(a->queue->wait({&wc, 1}, {.bound = 5 * kSecond, .spin = 0}), 1);
  }
}

TEST_P(Writes, AWrongKeyIsARemoteAccessErrorAndFlushesTheRest) {
  WriteRequest request = a->write_to(*b, 100, 1);
  request.remote_key ^= 0x5555;
  ASSERT_EQ(post_gpudirect_rdma_write(*a->qp, request), 0);
  ASSERT_EQ(a->completion().status, IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(post_gpudirect_rdma_write(*a->qp, a->write_to(*b, 100, 2)), 0);
  EXPECT_EQ(a->completion().status, IBV_WC_WR_FLUSH_ERR);
}

TEST_P(Writes, FlushEndsWhatIsOutstanding) {
  ASSERT_EQ(b->qp->flush(), 0);
  EXPECT_EQ(b->completion().status, IBV_WC_WR_FLUSH_ERR);
}

TEST_P(Writes, AFullSendQueueIsENOMEM) {
  WriteRequest request = a->write_to(*b, 131072, 1);
  int error = 0;
  for (int i = 0; i < 100'000 && error == 0; ++i) error = post_rdma_write_silent(*a->qp, request);
  EXPECT_EQ(error, ENOMEM);
}

TEST_P(Writes, TheLinkIsNamed) {
  const std::string link = a->qp->link_description();
  EXPECT_HAS(link, GetParam() == SameHostLink::kPackets ? "RoCEv2 packets" : "");
  EXPECT_FALSE(link.empty());
}

INSTANTIATE_TEST_SUITE_P(Links, Writes, ::testing::Values(SameHostLink::kAuto, SameHostLink::kPackets),
                         [](const auto& link) { return link.param == SameHostLink::kAuto ? "Auto" : "Packets"; });

TEST(Bringup, EveryRefusalSaysStepEndsAndCause) {
  const auto context = open_soft();
  End end{context};
  QpAddress remote = end.qp->address();
  ConnectOptions options;
  options.peer = "rank 3 on gpu07";

  options.dscp = 64;
  EXPECT_HAS(error_of([&] { transition_qp_to_rts(*end.qp, remote, options); }), "DSCP 64");
  options.dscp = 26;
  options.hop_limit = 1;
  EXPECT_HAS(error_of([&] { transition_qp_to_rts(*end.qp, remote, options); }), "hop limit 1");
  options.hop_limit = 64;
  remote.gid = {};
  EXPECT_HAS(error_of([&] { transition_qp_to_rts(*end.qp, remote, options); }), "GID is empty");
  remote.gid = *parse_gid("2001:db8::1");
  EXPECT_HAS(error_of([&] { transition_qp_to_rts(*end.qp, remote, options); }), "IPv6");

  remote = end.qp->address();
  transition_qp_to_rts(*end.qp, remote, options);
  const std::string twice = error_of([&] { transition_qp_to_rts(*end.qp, remote, options); });
  for (const char* part :
       {"RESET -> INIT", "EINVAL", "rank 3 on gpu07", "::ffff:127.", "QPN 0x", "DSCP 26", "GID index"}) {
    EXPECT_HAS(twice, part);
  }
}

TEST(Bringup, LimitsOfTheDeviceAreNamed) {
  const auto context = open_soft();
  QpOptions options;
  options.send_depth = 10'000'000;
  EXPECT_HAS(error_of([&] { End{context, options}; }), "work requests");
  EXPECT_HAS(error_of([&] { (void)CompletionQueue::create(context, 0); }), "1 to");
}

TEST(Bringup, InlineIsLoweredToWhatTheDeviceCan) {
  QpOptions options;
  options.max_inline = 1U << 20;
  const End end{open_soft(), options};
  EXPECT_GE(end.qp->max_inline(), 64U);
  EXPECT_LT(end.qp->max_inline(), 1U << 20);
}

TEST(Bringup, PsnsAreRandom) {
  const auto context = open_soft();
  EXPECT_NE(End{context}.qp->address().psn, End{context}.qp->address().psn);
}

/// What two processes exchange before they connect.
struct Meeting {
  std::array<std::byte, QpAddress::kBytes> address;
  std::uint64_t memory;
  std::uint32_t key;
};

/// Writes to the peer, waits for the peer's write, checks it. Returns 0, or the step that failed.
int exchange_with_peer(int peer, std::uint8_t mine, std::uint8_t theirs) {
  QpOptions options;
  options.link = SameHostLink::kPackets;
  End end{open_soft(), options};
  End source{end.context, options};
  std::ranges::fill(source.buffer, mine);
  const Meeting here{to_bytes(end.qp->address()), end.region.address(), end.region.rkey()};
  Meeting there{};
  if (write(peer, &here, sizeof here) != static_cast<ssize_t>(sizeof here)) return 2;
  if (recv(peer, &there, sizeof there, MSG_WAITALL) != static_cast<ssize_t>(sizeof there)) return 3;
  const auto remote = qp_address_from_bytes(there.address);
  if (!remote || remote->gid == end.context->gid()) return 4;  // each process has an address of its own
  transition_qp_to_rts(*end.qp, *remote, {});
  if (end.qp->post_empty_receives(1, 4) != 0) return 1;
  char ready = 'r';
  if (write(peer, &ready, 1) != 1 || read(peer, &ready, 1) != 1) return 5;

  const MemoryRegion region =
      register_gpu_memory_with_hca(end.domain, {.address = source.buffer.data(), .length = source.buffer.size()}, {});
  WriteRequest request;
  request.local_address = region.address();
  request.local_key = region.lkey();
  request.length = static_cast<std::uint32_t>(kBufferBytes);
  request.remote_address = there.memory;
  request.remote_key = there.key;
  request.immediate = mine;
  if (post_gpudirect_rdma_write(*end.qp, request) != 0) return 6;
  bool sent = false;
  bool received = false;
  while (!sent || !received) {
    ibv_wc wc{};
    if (end.queue->wait({&wc, 1}, kPatience) != 1 || wc.status != IBV_WC_SUCCESS) return 7;
    if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
      received = true;
      if (immediate_of(wc) != theirs) return 8;
    } else {
      sent = true;
    }
  }
  for (const std::uint8_t byte : end.buffer) {
    if (byte != theirs) return 9;
  }
  // The peer may still need this end's acknowledgements.
  return write(peer, &ready, 1) == 1 && read(peer, &ready, 1) == 1 ? 0 : 10;
}

TEST(Processes, TwoOfThemExchangeOverPackets) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  std::array<pid_t, 2> children{};
  for (std::size_t i = 0; i < 2; ++i) {
    children[i] = fork();
    if (children[i] != 0) continue;
    close(ends[1 - i]);
    int step = 99;
    try {
      step = exchange_with_peer(ends[i], static_cast<std::uint8_t>(10 + i), static_cast<std::uint8_t>(11 - i));
    } catch (const std::exception& error) {
      fprintf(stderr, "%s\n", error.what());
    }
    _exit(step);
  }
  close(ends[0]);
  close(ends[1]);
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0) << "the step that failed";
  }
}

}  // namespace
}  // namespace tensorwire::verbs
