// Several Hcas at one address: who gets a slot, and how packets find their owner although the kernel shuffles sockets.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <thread>

#include "base/error.hpp"
#include "content.hpp"
#include "endpoint.hpp"
#include "softhca/own_network.hpp"

namespace tensorwire::softhca::testing {
namespace {

using namespace std::chrono_literals;
using transport::WcStatus;

constexpr std::uint32_t kLongestMessage = 64 * 1024;

/// An address of the loopback interface that is not a loopback address: processes share it.
constexpr std::uint32_t kShared = 10U << 24 | 78U << 16 | 1;

std::shared_ptr<Hca> open_shared() {
  DeviceInfo device = loopback_device();
  device.ipv4 = kShared;
  return open_at(device, kShared, packets_only());
}

bool write_and_check(Checks& check, Endpoint& a, Endpoint& b, std::uint32_t number) {
  Content content(0, 1, 2, number, kLongestMessage);
  content.write(a.memory.data());
  std::ranges::fill(b.memory, std::byte{0});
  const bool posted = b.post_receives(1) == 0 && a.write_imm(b.address(), 0, content.bytes(), number) == 0;
  const auto arrived = b.next();
  const auto done = a.next();
  const bool right = posted && arrived && arrived->status == WcStatus::kSuccess && done &&
                     done->status == WcStatus::kSuccess &&
                     Content(0, 1, 2, number, kLongestMessage).equals(b.memory.data());
  check.that(right, "a message between two slots of one address");
  return right;
}

/// The program sends everything to somebody else: messages arrive all the same, and soon straight.
int wrong_places_heal() {
  need("ip addr add 10.78.0.1/32 dev lo");
  Checks check;
  std::deque<Endpoint> ends;
  for (int i = 0; i < 4; ++i) ends.emplace_back(open_shared());
  check.that(ends[0].connect(ends[1].address()) == 0 && ends[1].connect(ends[0].address()) == 0, "the two connect");
  for (std::uint32_t i = 0; i < 3; ++i) write_and_check(check, ends[0], ends[1], i);
  const auto passed_on = [&] {
    std::uint64_t sum = 0;
    for (const Endpoint& end : ends) sum += end.counter("strays_passed_on");
    return sum;
  };
  std::this_thread::sleep_for(50ms);  // newcomers ask twice
  const std::uint64_t before = passed_on();

  // A socket of this user joins the group for its right to write a program, and leaves: what it wrote stays.
  {
    const UniqueFd intruder = bind_roce_port(wire::Gid::from_ipv4(kShared), 0, true);
    Places wrong;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const std::uint8_t slot = slot_of(ends[i].address().qpn);
      wrong[slot] = static_cast<std::uint8_t>((i + 1) % ends.size());
    }
    check.that(attach(intruder.get(), dispatch_program(wrong)) == 0, "the program is written");
  }
  write_and_check(check, ends[0], ends[1], 10);
  check.that(passed_on() > before, "strays are passed on");
  std::this_thread::sleep_for(100ms);
  for (std::uint32_t i = 20; i < 40; ++i) write_and_check(check, ends[0], ends[1], i);
  const std::uint64_t healed = passed_on();
  for (std::uint32_t i = 40; i < 60; ++i) write_and_check(check, ends[0], ends[1], i);
  check.that(passed_on() == healed, "a new program has put everybody in place");
  return check.result();
}

/// Members close, in the middle and at the end: the others are found again.
int members_come_and_go() {
  need("ip addr add 10.78.0.1/32 dev lo");
  Checks check;
  std::deque<std::optional<Endpoint>> others;
  for (int i = 0; i < 3; ++i) others.emplace_back(open_shared());
  Endpoint a(open_shared());
  others.emplace_back(open_shared());
  Endpoint b(open_shared());
  check.that(a.connect(b.address()) == 0 && b.connect(a.address()) == 0, "the two connect");
  std::uint32_t number = 0;
  for (std::optional<Endpoint>& other : others) {
    other.reset();
    for (int i = 0; i < 5; ++i) write_and_check(check, a, b, ++number);
    other.emplace(open_shared());
    for (int i = 0; i < 5; ++i) write_and_check(check, a, b, ++number);
  }
  return check.result();
}

int every_slot() {
  need("ip addr add 10.78.0.1/32 dev lo");
  Checks check;
  DeviceInfo device = loopback_device();
  device.ipv4 = kShared;
  std::deque<AddressClaim> claims;
  std::array<bool, kHighestSlot + 1> taken{};
  for (unsigned i = 0; i < kSlots; ++i) {
    claims.push_back(claim_address(device));
    check.that(!std::exchange(taken[claims.back().slot], true), "a slot belongs to one");
  }
  check.that(!taken[0], "slot 0 belongs to nobody");
  try {
    const AddressClaim more = claim_address(device);
    check.that(false, "there is no slot left");
  } catch (const Error& error) {
    check.that(std::string_view{error.what()}.find("all 255 process slots of 10.78.0.1") != std::string_view::npos,
               error.what());
  }
  const std::uint8_t freed = claims[100].slot;
  claims.erase(claims.begin() + 100);
  check.that(claim_address(device).slot == freed, "a slot that is given back can be had");
  return check.result();
}

int another_user() {
  if (::geteuid() != 0) return kNoNamespace;
  need("ip addr add 10.78.0.1/32 dev lo");
  DeviceInfo device = loopback_device();
  device.ipv4 = kShared;
  const AddressClaim ours = claim_address(device);
  ChildProcess other([&] {
    constexpr uid_t kNobody = 65534;
    if (::setresuid(kNobody, kNobody, kNobody) != 0) return kNoNamespace;
    Checks check;
    try {
      const AddressClaim theirs = claim_address(device);
      check.that(false, "an address is shared by one user's processes only");
    } catch (const Error& error) {
      const std::string line = error.what();
      check.that(line.find("processes of user 0") != std::string::npos && line.find('\n') == std::string::npos,
                 line.c_str());
    }
    return check.result();
  });
  return other.wait();
}

int all_loopback_addresses() {
  Checks check;
  std::deque<AddressClaim> claims;
  for (int i = 1; i < 255; ++i) claims.push_back(claim_address(loopback_device()));
  try {
    const AddressClaim more = claim_address(loopback_device());
    check.that(false, "there is no address left");
  } catch (const Error& error) {
    const std::string line = error.what();
    check.that(line.find("all of 127.0.0.1 to 127.0.0.254 are owned") != std::string::npos &&
                   line.find('\n') == std::string::npos,
               line.c_str());
  }
  return check.result();
}

struct AddressCase {
  const char* name;
  int (*body)();
};

class SharedAddress : public ::testing::TestWithParam<AddressCase> {};

TEST_P(SharedAddress, InANetworkOfItsOwn) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not let a forked child start threads";
  const int result = in_own_network(GetParam().body, 30s);
  if (result == kNoNamespace) GTEST_SKIP() << "namespaces or users are forbidden here, or ip(8) is missing";
  EXPECT_EQ(result, kPassed) << "see the lines above";
}

INSTANTIATE_TEST_SUITE_P(, SharedAddress,
                         ::testing::Values(AddressCase{"WrongPlacesHeal", wrong_places_heal},
                                           AddressCase{"MembersComeAndGo", members_come_and_go},
                                           AddressCase{"EverySlot", every_slot},
                                           AddressCase{"AnotherUser", another_user},
                                           AddressCase{"AllLoopbackAddresses", all_loopback_addresses}),
                         [](const auto& chosen) { return std::string{chosen.param.name}; });

}  // namespace
}  // namespace tensorwire::softhca::testing
