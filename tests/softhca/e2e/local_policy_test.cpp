// What the kernel's ptrace policy does to the same-host link: a process whose memory may not be read sends packets and
// says so in one line, whoever forbids it and whenever; and peers that are killed while everything is under way.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <csignal>
#include <string>

#include "local_pair.hpp"

namespace tensorwire::softhca::testing {
namespace {

constexpr const char* kForbidden = "RoCEv2 packets (the kernel forbids the peer process to read our memory";

/// Root may read every process. Without this capability it may do what the policy allows to everybody else; threads and
/// children that begin meanwhile are without it, too.
class WithoutPtraceCapability {
 public:
  WithoutPtraceCapability() {
    get(before_);
    auto data = before_;
    data[0].effective &= ~(1U << CAP_SYS_PTRACE);
    set(data);
  }
  WithoutPtraceCapability(const WithoutPtraceCapability&) = delete;
  WithoutPtraceCapability& operator=(const WithoutPtraceCapability&) = delete;
  ~WithoutPtraceCapability() { set(before_); }

 private:
  using Data = std::array<__user_cap_data_struct, 2>;
  static void get(Data& data) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    EXPECT_EQ(::syscall(SYS_capget, &header, data.data()), 0);
  }
  static void set(Data& data) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    EXPECT_EQ(::syscall(SYS_capset, &header, data.data()), 0);
  }

  Data before_{};
};

/// Nobody else's process may read the memory of this one.
class Undumpable {
 public:
  Undumpable() { EXPECT_EQ(::prctl(PR_SET_DUMPABLE, 0), 0); }
  Undumpable(const Undumpable&) = delete;
  Undumpable& operator=(const Undumpable&) = delete;
  ~Undumpable() { ::prctl(PR_SET_DUMPABLE, 1); }
};

/// A file that a child writes its standard error to.
class Journal {
 public:
  void take_stderr() const { ::dup2(file_.get(), STDERR_FILENO); }
  /// How many lines have this text.
  [[nodiscard]] std::size_t count(const std::string& text) const {
    std::string all(1U << 16, '\0');
    const ssize_t n = ::pread(file_.get(), all.data(), all.size(), 0);
    all.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
    std::size_t found = 0;
    for (std::size_t at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++found;
    return found;
  }

 private:
  UniqueFd file_{::memfd_create("journal", 0)};
};

class LocalPolicyTest : public LocalLinkTest {
 protected:
  WithoutPtraceCapability like_everybody_;
  Journal journal_;

  /// As LocalLinkTest::start(), with a child that may be read only when `readable`, until SIGUSR1.
  void start_with(bool readable) {
    Endpoint::Settings quick;
    quick.timeout = 8;
    quick.retry_cnt = 3;
    const std::uint32_t address = test_address(1);
    child_.emplace([&, readable] {
      journal_.take_stderr();
      ::prctl(PR_SET_DUMPABLE, readable ? 1 : 0);
      ::signal(SIGUSR1, [](int) { ::prctl(PR_SET_DUMPABLE, 0); });
      return echo(desk_, address, quick);
    });
    meet_child(patient());
  }
};

TEST_F(LocalPolicyTest, APeerThatMayNotBeReadAnswersInPackets) {
  ASSERT_NO_FATAL_FAILURE(start_with(false));
  EXPECT_EQ(link(), "same-host link") << "we may be read";
  for (const std::uint32_t bytes : {0U, 8U, 4'097U, 100'000U, kMemoryBytes})
    ASSERT_NO_FATAL_FAILURE(expect_echo(0, bytes));
  EXPECT_EQ(parent_->counter("local_channels_refused"), 1U);
  EXPECT_EQ(parent_->counter("local_rx_records"), 0U);
  EXPECT_EQ(journal_.count("same-host link to"), 1U) << "one line says so";
  EXPECT_EQ(journal_.count("kernel.yama.ptrace_scope"), 1U) << "and what to do";
}

TEST_F(LocalPolicyTest, NobodyMayBeRead) {
  const Undumpable us;
  ASSERT_NO_FATAL_FAILURE(start_with(false));
  EXPECT_EQ(link().rfind(kForbidden, 0), 0U) << link();
  for (const std::uint32_t bytes : {0U, 8U, 100'000U}) ASSERT_NO_FATAL_FAILURE(expect_echo(0, bytes));
  EXPECT_EQ(parent_->counter("local_tx_records"), 0U);
}

/// A channel that was agreed on, and then the policy changes: what must be pulled cannot be, and the sender learns it
/// within its retry bound.
TEST_F(LocalPolicyTest, APeerThatMayNotBeReadAnyMoreEndsInAnError) {
  ASSERT_NO_FATAL_FAILURE(start_with(true));
  ASSERT_NO_FATAL_FAILURE(expect_echo(0, 100'000));
  EXPECT_GT(parent_->counter("local_rx_pulled_bytes"), 0U);
  ASSERT_EQ(::kill(child_->pid(), SIGUSR1), 0);
  std::this_thread::sleep_for(20ms);
  ASSERT_EQ(parent_->write_imm(desk_->child, 0, 100'000, 0), 0);
  EXPECT_EQ(child_->wait(5s), 3) << "the echo's work request failed";
  EXPECT_EQ(parent_->counter("local_channels_closed"), 1U);
}

// ---- kill -9 in mid-traffic

/// Both directions are full of messages that are pulled when the peer dies, after a time of its own in each round.
/// Every request ends, in order and within its bound, and the next peer finds everything well.
TEST_F(LocalLinkTest, PeersKilledInMidTraffic) {
  Endpoint::Settings quick;
  quick.timeout = 10;
  quick.retry_cnt = 3;
  constexpr std::uint32_t kMessage = 60'000;
  constexpr std::uint32_t kInFlight = 16;
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(start(quick, quick));
    std::uint32_t posted = 0;
    std::uint32_t completed = 0;
    const auto post = [&] {
      ASSERT_EQ(
          parent_->write_imm(desk_->child, posted % kInFlight * kMessage, kMessage, posted % kInFlight * kMessage), 0);
      ++posted;
    };
    for (std::uint32_t i = 0; i < kInFlight; ++i) post();
    const Ps end = monotonic_now() + (2 + 3 * round) * kMillisecond;
    while (monotonic_now() < end) {
      std::array<transport::Completion, 1> one;
      if (parent_->cq->poll(one) == 0) continue;
      ASSERT_EQ(one[0].status, WcStatus::kSuccess);
      if (one[0].opcode == WcOpcode::kRecvWithImm) {
        ASSERT_EQ(parent_->post_receives(1), 0);
      } else {
        ++completed;
        post();
      }
    }
    child_->end();
    for (int i = 0; i < 4; ++i) post();  // what was under way may just have been done
    bool failed = false;
    while (completed < posted) {
      const auto completion = parent_->next(3 * kSecond);
      ASSERT_TRUE(completion) << completed << " of " << posted;
      if (completion->opcode == WcOpcode::kRecvWithImm || completion->opcode == WcOpcode::kRecv) continue;
      ++completed;
      if (!failed && completion->status == WcStatus::kSuccess) continue;
      ASSERT_EQ(completion->status, failed ? WcStatus::kFlushError : WcStatus::kRetryExceeded);
      failed = true;
    }
    EXPECT_TRUE(failed);
    EXPECT_EQ(parent_->counter("local_channels_closed"), 1U);
    parent_.reset();
    desk_->child_there = 0;
    desk_->parent_there = 0;
  }
}

}  // namespace
}  // namespace tensorwire::softhca::testing
