// The last bytes of a copy are stored after all others. A second thread that polls would see a wrong order only by
// luck; a page fault sees it always: the last bytes lie on a page of their own that may not be written yet, and the
// fault's handler looks at what is already there.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "wire/icrc.hpp"

namespace tensorwire::wire {
namespace {

constexpr std::byte kOld{0x11};
constexpr std::byte kNew{0x22};

struct Watch {
  std::byte* guarded = nullptr;  ///< page that may not be written
  std::size_t page_bytes = 0;
  const std::byte* head = nullptr;  ///< what must be written before it
  std::size_t head_bytes = 0;
  volatile sig_atomic_t faults = 0;
  volatile sig_atomic_t complete = 0;
};
Watch watch;

void on_fault(int, siginfo_t* info, void*) {
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  if (address < watch.guarded || address >= watch.guarded + watch.page_bytes) {
    signal(SIGSEGV, SIG_DFL);  // not ours: fault again, and die as one should
    return;
  }
  watch.faults = watch.faults + 1;
  watch.complete =
      std::all_of(watch.head, watch.head + watch.head_bytes, [](std::byte b) { return b == kNew; }) ? 1 : 0;
  mprotect(watch.guarded, watch.page_bytes, PROT_READ | PROT_WRITE);
}

class CrcCopyOrder : public ::testing::Test {
 protected:
  void SetUp() override {
    page_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* memory = mmap(nullptr, kPages * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    memory_ = static_cast<std::byte*>(memory);
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    ASSERT_EQ(sigaction(SIGSEGV, &action, &previous_), 0);
  }

  void TearDown() override {
    sigaction(SIGSEGV, &previous_, nullptr);
    munmap(memory_, kPages * page_);
  }

  /// True when the last `tail` of `bytes` were stored after all the others.
  bool last_come_last(std::size_t bytes, std::size_t tail) {
    std::byte* guarded = memory_ + (kPages - 1) * page_;
    std::byte* to = guarded + tail - bytes;
    std::fill(memory_, memory_ + kPages * page_, kOld);
    watch = Watch{.guarded = guarded, .page_bytes = page_, .head = to, .head_bytes = bytes - tail};
    mprotect(guarded, page_, PROT_READ);
    const std::vector<std::byte> from(bytes, kNew);
    EXPECT_EQ(crc_copy(1, to, from), crc_update(1, from));
    EXPECT_EQ(watch.faults, 1);
    EXPECT_TRUE(std::all_of(to, to + bytes, [](std::byte b) { return b == kNew; }));
    return watch.complete == 1;
  }

  static constexpr std::size_t kPages = 20;
  std::size_t page_ = 0;
  std::byte* memory_ = nullptr;
  struct sigaction previous_ {};
};

TEST_F(CrcCopyOrder, LastWordComesAfterEverythingElse) {
  for (const std::size_t bytes : {9U, 16U, 33U, 64U, 100U, 1000U, 1024U, 4096U, 4104U, 5000U, 65'536U}) {
    EXPECT_TRUE(last_come_last(bytes, 8)) << bytes << " bytes";
  }
}

TEST_F(CrcCopyOrder, LastByteComesAfterEverythingElse) {
  for (const std::size_t bytes : {2U, 5U, 8U, 9U, 31U, 64U, 1003U, 4096U, 4097U, 65'536U}) {
    EXPECT_TRUE(last_come_last(bytes, 1)) << bytes << " bytes";
  }
}

}  // namespace
}  // namespace tensorwire::wire
