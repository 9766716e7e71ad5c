// Descriptors from inbox to inbox, within one process: what arrives, from whom, and what is refused.
#include "base/fd_passing.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace tensorwire {
namespace {

constexpr std::uint64_t kToken = 0x1234567890abcdef;

/// A pipe, to see that a descriptor leads to the same file.
struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    out = UniqueFd(ends[0]);
    in = UniqueFd(ends[1]);
  }
  UniqueFd out, in;
};

Ps soon() { return monotonic_now() + 5 * kSecond; }

TEST(FdPassing, DescriptorArrivesWithItsSender) {
  const Pipe pipe;
  FdInbox inbox;
  deliver_fd(inbox.path(), kToken, 3, pipe.in.get());
  const FdInbox::Delivery delivery = inbox.receive(kToken, soon());
  EXPECT_EQ(delivery.sender, 3U);
  ASSERT_EQ(::write(delivery.fd.get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(pipe.out.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
}

TEST(FdPassing, ManyMayBeUnderWayBeforeAnyoneLooks) {
  const Pipe pipe;
  FdInbox inbox;
  for (std::uint32_t sender = 0; sender < 7; ++sender) deliver_fd(inbox.path(), kToken, sender, pipe.in.get());
  for (std::uint32_t sender = 0; sender < 7; ++sender) EXPECT_EQ(inbox.receive(kToken, soon()).sender, sender);
}

TEST(FdPassing, OtherTokensAreDropped) {
  const Pipe pipe;
  FdInbox inbox;
  deliver_fd(inbox.path(), kToken + 1, 1, pipe.in.get());
  deliver_fd(inbox.path(), kToken, 2, pipe.in.get());
  EXPECT_EQ(inbox.receive(kToken, soon()).sender, 2U);
}

TEST(FdPassing, WaitingEndsInTime) {
  FdInbox inbox;
  const Ps began = monotonic_now();
  EXPECT_THROW((void)inbox.receive(kToken, began + 20 * kMillisecond), Error);
  EXPECT_LT(monotonic_now() - began, 2 * kSecond);
}

TEST(FdPassing, ThePathIsTheOwnersAndGoesWithIt) {
  std::string path;
  {
    const FdInbox inbox;
    path = inbox.path();
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0600U);
  }
  const Pipe pipe;
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  EXPECT_THROW(deliver_fd(path, kToken, 0, pipe.in.get()), Error);
}

}  // namespace
}  // namespace tensorwire
