// Addresses come and go under a communicator: it follows its address to another index, with the queue pairs that it
// has, and says what is wrong here when it is gone. In a network of the test's own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/verbs_link.hpp"
#include "rank_processes.hpp"
#include "softhca/own_network.hpp"
#include "tensors.hpp"

namespace tensorwire::comm {
namespace {

using softhca::testing::Checks;
using softhca::testing::need;

#ifdef TENSORWIRE_TSAN
constexpr bool kThreadSanitizer = true;  // a forked child may not start threads under it
#else
constexpr bool kThreadSanitizer = false;
#endif

/// An interface with IPv4 at index 1 and two IPv6 addresses behind it, at 2 and 3.
void make_interface() {
  need("ip link add tw0 type veth peer name tw1 && ip addr add 10.9.0.1/24 dev tw0");
  need("ip link set tw0 addrgenmode none && ip link set tw1 addrgenmode none");
  need("ip link set tw0 up && ip link set tw1 up");
  need("ip addr add 2001:db8::9/64 dev tw0 nodad && ip addr add 2001:db8::a/64 dev tw0 nodad");
}

CommOptions options_at(int gid_index) {
  CommOptions options = soft_options();
  options.device = "soft1";
  options.gid_index = gid_index;
  options.path = PathChoice::kPackets;
  return options;
}

/// What the device says of a queue pair.
struct Path {
  ibv_qp_state state = IBV_QPS_UNKNOWN;
  int gid_index = -1;
  std::uint32_t qpn = 0;
  bool operator==(const Path&) const = default;
};

Path path_of(const verbs::QueuePair& qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (qp.context()->call().query_qp(qp.raw(), &attr, IBV_QP_STATE | IBV_QP_AV, &init) != 0) return {};
  return {attr.qp_state, attr.ah_attr.grh.sgid_index, qp.qpn()};
}

/// One all-reduce to which rank 1 comes late, so that rank 0 has time to look around.
void reduce_late(Communicator& comm, int late_rank) {
  if (comm.rank() == late_rank) std::this_thread::sleep_for(std::chrono::milliseconds{250});
  std::vector<float> data(50'000, 1.0F);
  if (!comm.all_reduce(data.data(), data.data(), data.size(), DType::kFloat32)) {
    throw Error{"all-reduce", comm.error()->line};
  }
  if (data.front() != 2.0F || data.back() != 2.0F) throw Error{"all-reduce", "the sum is wrong"};
}

int the_address_moves() {
  make_interface();
  Checks check;
  const auto results = run_ranks(
      2,
      [](bootstrap::Group& group) {
        const VerbsLink* link = nullptr;
        CommOptions options = options_at(3);
        options.link_factory = [&](bootstrap::Group& ranks, const LinkSetup& setup) {
          VerbsLinkOptions wish;
          wish.device.device = options.device;
          wish.device.gid_index = options.gid_index;
          wish.path = verbs::SameHostLink::kPackets;
          auto made = std::make_unique<VerbsLink>(ranks, setup, wish);
          link = made.get();
          return made;
        };
        const auto comm = Communicator::create(group, options);
        reduce_late(*comm, 1);
        const auto peer = static_cast<std::uint32_t>(1 - group.rank());
        const Path before = path_of(link->queue_pair(peer));
        if (before.state != IBV_QPS_RTS || before.gid_index != 3) throw Error{"the path before", "is another one"};
        group.barrier();
        if (group.rank() == 0) {
          need("ip addr del 2001:db8::a/64 dev tw0 && ip addr add 2001:db8::b/64 dev tw0 nodad");
          std::this_thread::sleep_for(std::chrono::milliseconds{100});
          need("ip addr add 2001:db8::a/64 dev tw0 nodad");
        }
        group.barrier();
        for (int round = 0; round < 3; ++round) {
          reduce_late(*comm, 0);
          reduce_late(*comm, 1);
        }
        const Path after = path_of(link->queue_pair(peer));
        if (after != Path{IBV_QPS_RTS, 4, before.qpn}) {
          throw Error{"the queue pair",
                      fmt::format("in state {} at index {}", static_cast<int>(after.state), after.gid_index)};
        }
        return comm->describe();
      },
      8 * kSecond);
  for (const RankResult& result : results) {
    std::fprintf(stderr, "%s\n", result.text.c_str());
    check.that(result.exit_code == 0, result.text.c_str());
    check.that(result.text.find("GID index 4 = 2001:db8::a") != std::string::npos, "its address is at index 4");
  }
  return check.result();
}

int the_address_is_lost() {
  make_interface();
  Checks check;
  const auto results = run_ranks(
      2,
      [](bootstrap::Group& group) {
        const auto comm = Communicator::create(group, options_at(1));
        reduce_late(*comm, 1);
        group.barrier();
        if (group.rank() == 0) need("ip addr del 10.9.0.1/24 dev tw0");
        group.barrier();
        reduce_late(*comm, 1);
        return std::string{"it went on"};
      },
      8 * kSecond);
  for (const RankResult& result : results) std::fprintf(stderr, "%s\n", result.text.c_str());
  check.that(results[0].exit_code == 1 && results[1].exit_code == 1, "both fail");
  const auto says = [&](int rank) {
    return results[static_cast<std::size_t>(rank)].text.find("soft1 has lost the address ::ffff:10.9.0.1") !=
           std::string::npos;
  };
  check.that(says(0) && says(1), "both lines say what is wrong, and where");
  return check.result();
}

void expect_passed(int result) {
  if (result == softhca::testing::kNoNamespace) {
    GTEST_SKIP() << "network namespaces are forbidden here, or ip(8) is missing";
  }
  EXPECT_EQ(result, softhca::testing::kPassed) << "see the lines above";
}

TEST(PathEvents, AnAddressThatMovesToAnotherIndexIsFollowed) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not let a forked child start threads";
  expect_passed(softhca::testing::in_own_network(the_address_moves));
}

TEST(PathEvents, AnAddressThatIsGoneIsNamedByBoth) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not let a forked child start threads";
  expect_passed(softhca::testing::in_own_network(the_address_is_lost));
}

}  // namespace
}  // namespace tensorwire::comm
