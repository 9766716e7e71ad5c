// Who gets which address, and what bad requests get.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/error.hpp"
#include "endpoint.hpp"

namespace tensorwire::softhca::testing {
namespace {

UniqueFd foreign_socket_on(std::uint32_t ipv4) {
  UniqueFd fd{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(wire::kRoceUdpPort);
  address.sin_addr.s_addr = htonl(ipv4);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << strerror(errno);
  return fd;
}

TEST(Claim, AnOwnedAddressIsRefusedUntilItsOwnerGoes) {
  const std::uint32_t at = test_address(0);
  {
    const auto owner = try_claim(at);
    ASSERT_TRUE(owner);
    EXPECT_FALSE(try_claim(at));
  }
  EXPECT_TRUE(try_claim(at));
}

TEST(Claim, APortThatSomebodyElseHoldsIsOneClearError) {
  const std::uint32_t at = test_address(0);
  const UniqueFd foreign = foreign_socket_on(at);
  try {
    const auto claim = try_claim(at);
    FAIL() << "claimed a taken port";
  } catch (const Error& error) {
    const std::string line = error.what();
    EXPECT_NE(line.find("4791"), std::string::npos) << line;
    EXPECT_NE(line.find(wire::ipv4_text(at)), std::string::npos) << line;
    EXPECT_NE(line.find("EADDRINUSE"), std::string::npos) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  }
}

TEST(Claim, AnAddressOfAnotherInterfaceIsSharedBySlots) {
  for (const DeviceInfo& device : list_devices()) {
    if (is_loopback(device.ipv4)) continue;
    const AddressClaim first = claim_address(device);
    const AddressClaim second = claim_address(device);
    EXPECT_EQ(first.ipv4, second.ipv4);
    EXPECT_NE(first.slot, second.slot);
    EXPECT_NE(first.slot, 0);
    EXPECT_NE(second.slot, 0);
    return;
  }
  GTEST_SKIP() << "no interface but loopback has an IPv4 address";
}

TEST(Open, LoopbackTakesTheNextFreeAddressAndIsShared) {
  if (kThreadSanitizer) GTEST_SKIP();
  const auto first = Hca::open(loopback_device());
  EXPECT_TRUE(is_loopback(first->device().ipv4));
  EXPECT_EQ(Hca::open(loopback_device()), first) << "one Hca per process and device";

  // Another process gets another address.
  const pid_t child = ::fork();
  if (child == 0) {
    const auto mine = Hca::open(loopback_device());
    ::_exit(mine->device().ipv4 != first->device().ipv4 && is_loopback(mine->device().ipv4) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

class Gids : public ::testing::Test {
 protected:
  static int rtr_with(GidLayout layout, std::uint8_t index) {
    HcaOptions options = packets_only();
    options.gid_layout = layout;
    const Endpoint end{open_at(loopback_device(), test_address(0), std::move(options))};
    EXPECT_EQ(end.to_init(), 0);
    Address peer = end.address();
    return end.to_rtr(peer, index);
  }
};

TEST_F(Gids, EmptyIndexIsENODATA) {
  EXPECT_EQ(rtr_with(GidLayout::kV2Only, 0), ENODATA);
  EXPECT_EQ(rtr_with(GidLayout::kConnectX, 1), ENODATA);
  EXPECT_EQ(rtr_with(GidLayout::kV2Only, 3), ENODATA);
}
TEST_F(Gids, RoceV1IsEINVAL) { EXPECT_EQ(rtr_with(GidLayout::kConnectX, 2), EINVAL); }
TEST_F(Gids, TheRoutableOneWorks) {
  EXPECT_EQ(rtr_with(GidLayout::kV2Only, 1), 0);
  EXPECT_EQ(rtr_with(GidLayout::kConnectX, 3), 0);
}

TEST(Register, WrongMemoryIsRefused) {
  const auto hca = open_at(loopback_device(), test_address(0), packets_only());
  const transport::PdId pd = hca->create_pd();
  std::uint32_t key = 0;
  std::array<std::byte, 64> good;
  const auto at = reinterpret_cast<std::uint64_t>(good.data());
  EXPECT_EQ(hca->register_memory(pd, 4096, 4096, 4096, 0, key), EFAULT);
  EXPECT_EQ(hca->register_memory(pd, at, good.size(), at, transport::kAccessRemoteWrite, key), EINVAL)
      << "remote write without local write";
  EXPECT_EQ(hca->register_memory(pd + 100, at, good.size(), at, 0, key), EINVAL) << "no such domain";
  void* const page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto read_only = reinterpret_cast<std::uint64_t>(page);
  EXPECT_EQ(hca->register_memory(pd, read_only, 4096, read_only, transport::kAccessLocalWrite, key), EFAULT);
  EXPECT_EQ(hca->register_memory(pd, read_only, 4096, read_only, 0, key), 0);
  EXPECT_EQ(hca->destroy_pd(pd), EBUSY);
  EXPECT_EQ(hca->deregister_memory(key), 0);
  EXPECT_EQ(hca->deregister_memory(key), EINVAL);
  EXPECT_EQ(hca->destroy_pd(pd), 0);
  munmap(page, 4096);
}

TEST(Fork, TheChildHasADeadHcaAndTheParentGoesOn) {
  if (kThreadSanitizer) GTEST_SKIP();
  Endpoint a{open_at(loopback_device(), test_address(0), packets_only())};
  Endpoint b{open_at(loopback_device(), test_address(1), packets_only())};
  ASSERT_EQ(a.connect(b.address()), 0);
  ASSERT_EQ(b.connect(a.address()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::array<transport::Completion, 1> one;
    const bool dead = a.cq->poll(one) == 0 && a.write_imm(b.address(), 0, 8, 1) == EIO &&
                      a.hca->deregister_memory(a.key) == EIO && a.hca->counters().empty();
    // A new one works, at an address of its own.
    const Endpoint fresh{Hca::open(loopback_device())};
    ::_exit(dead && fresh.to_init() == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(b.post_receives(1), 0);
  ASSERT_EQ(a.write_imm(b.address(), 0, 100'000, 9), 0);
  const auto arrived = b.next();
  ASSERT_TRUE(arrived);
  EXPECT_EQ(arrived->immediate, 9U);
}

}  // namespace
}  // namespace tensorwire::softhca::testing
