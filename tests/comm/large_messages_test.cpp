// Messages between two ranks of every size, above all those that go straight into the receiver's buffer: any number of
// them cross, the CPU copies nothing of the large ones, and ranks that disagree, die or stay away harm nobody's memory.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "canary_memory.hpp"
#include "rank_processes.hpp"

namespace tensorwire::comm {
namespace {

constexpr std::size_t kWindowBytes = std::size_t{1} << 20;  ///< from here on
constexpr std::int32_t kBefore = 0x5a5a5a5a;

/// A message from one rank to another, as both of them, and only they, hold it.
struct LargeMessage {
  bool sends = false;
  int peer = 0;
  std::uint64_t seed = 0;
  std::vector<std::int32_t> data;  ///< a canary at each end

  [[nodiscard]] std::size_t count() const { return data.size() - 2; }
  [[nodiscard]] std::int32_t value(std::size_t i) const { return static_cast<std::int32_t>(mix64(seed) + 3 * i); }
  [[nodiscard]] Transfer transfer() { return {sends, peer, data.data() + 1, count(), collective::DType::kInt32}; }
  void fill() {
    for (std::size_t i = 0; i < count(); ++i) data[i + 1] = value(i);
  }
  [[nodiscard]] std::string fault() const {
    if (data.front() != kBefore || data.back() != kBefore) return "a canary is dead";
    for (std::size_t i = 0; i < count(); ++i) {
      if (data[i + 1] != value(i)) return fmt::format("element {} of {} from rank {} is wrong", i, count(), peer);
    }
    return {};
  }
};

LargeMessage message(bool sends, int peer, std::uint64_t seed, std::size_t count) {
  LargeMessage made{sends, peer, seed, std::vector<std::int32_t>(count + 2, kBefore)};
  if (sends) made.fill();
  return made;
}

/// Sends and receives at once. @throws Error when anything is wrong.
void run_messages(Communicator& comm, std::vector<LargeMessage>& messages) {
  std::vector<Transfer> transfers;
  for (LargeMessage& one : messages) transfers.push_back(one.transfer());
  if (!comm.run(std::span<const Transfer>{transfers})) throw Error{"messages", comm.error()->line};
  for (const LargeMessage& one : messages) {
    if (const std::string fault = one.sends ? std::string{} : one.fault(); !fault.empty()) {
      throw Error{"messages", fault};
    }
  }
}

std::size_t random_count(Random& random) {
  constexpr std::size_t kLimit = kWindowBytes / 4;
  switch (random.below(8)) {
    case 0:
      return 0;
    case 1:
      return 1 + random.below(5000);
    case 2:
      return random.below(kLimit);
    case 3:
      return kLimit - 1;
    case 4:
      return kLimit;
    case 5:
      return kLimit + 1;
    case 6:
      return kLimit + random.below(kLimit);
    default:
      return kLimit * (3 + random.below(8)) + random.below(1000);  // several segments
  }
}

/// The messages of one rank among all that cross, those of a pair in their order, else in an order of its own.
std::vector<LargeMessage> random_messages(std::uint64_t seed, int ranks, int rank) {
  Random random{seed};
  std::vector<std::vector<LargeMessage>> queues;
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      std::vector<LargeMessage> queue;
      const std::uint32_t number = random.below(5);
      for (std::uint32_t i = 0; i < number; ++i) {
        const std::size_t count = random_count(random);
        const std::uint64_t data_seed = random.next();
        if (from == to || (from != rank && to != rank)) continue;
        queue.push_back(message(from == rank, from == rank ? to : from, data_seed, count));
      }
      if (!queue.empty()) queues.push_back(std::move(queue));
    }
  }
  Random order{mix64(seed) + static_cast<std::uint64_t>(rank)};
  std::vector<LargeMessage> all;
  while (!queues.empty()) {
    const std::uint32_t at = order.below(static_cast<std::uint32_t>(queues.size()));
    all.push_back(std::move(queues[at].front()));
    queues[at].erase(queues[at].begin());
    if (queues[at].empty()) queues.erase(queues.begin() + at);
  }
  return all;
}

class LargeMessages : public ::testing::TestWithParam<int> {};

TEST_P(LargeMessages, OfMixedSizesCrossAndTheCpuCopiesTheSmallOnesOnly) {
  const int ranks = GetParam();
  for (const RankResult& result : run_ranks(ranks, [ranks](bootstrap::Group& group) {
         const auto comm = Communicator::create(group, soft_options());
         std::uint64_t small = 0;
         for (std::uint64_t seed = 0; seed < 12; ++seed) {
           auto messages = random_messages(seed * 100 + static_cast<std::uint64_t>(ranks), ranks, group.rank());
           for (const LargeMessage& one : messages) {
             if (!one.sends && one.count() * 4 < kWindowBytes) small += one.count() * 4;
           }
           run_messages(*comm, messages);
         }
         const std::uint64_t copied = comm->stats().runner.bytes_copied;
         return copied == small ? std::string{"right"} : fmt::format("{} copied, not {}", copied, small);
       })) {
    EXPECT_EQ(result.text, "right");
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, LargeMessages, ::testing::Values(2, 3, 5));

TEST(LargeMessage, Of64MiBEachWayOverPacketsAndTheSameHostLink) {
  for (const PathChoice path : {PathChoice::kAuto, PathChoice::kPackets}) {
    for (const RankResult& result : run_ranks(2, [path](bootstrap::Group& group) {
           CommOptions options = soft_options();
           options.path = path;
           const auto comm = Communicator::create(group, options);
           constexpr std::size_t kCount = std::size_t{16} << 20;
           const int peer = 1 - group.rank();
           std::vector<LargeMessage> messages;
           messages.push_back(message(true, peer, static_cast<std::uint64_t>(group.rank()), kCount));
           messages.push_back(message(false, peer, static_cast<std::uint64_t>(peer), kCount));
           run_messages(*comm, messages);
           return fmt::format("{} copied", comm->stats().runner.bytes_copied);
         })) {
      EXPECT_EQ(result.text, "0 copied");
    }
  }
}

/// Rank 0 does all at once. Rank 1 first takes what rank 0 sends, then what it has to send itself: the invitations of
/// rank 0 for that, more than a pair has slots, must not stand in the way.
TEST(LargeMessage, ThatIsTakenBeforeOthersAreSent) {
  for (const RankResult& result : run_ranks(2, [](bootstrap::Group& group) {
         const auto comm = Communicator::create(group, soft_options());
         const bool first = group.rank() == 0;
         std::vector<LargeMessage> invited, taken;
         for (std::uint64_t i = 0; i < 6; ++i) {
           invited.push_back(message(!first, 1 - group.rank(), i, kWindowBytes / 2 + i));
           taken.push_back(message(first, 1 - group.rank(), 100 + i, i % 2 == 0 ? kWindowBytes / 2 : 1000));
         }
         if (first) {
           for (LargeMessage& one : taken) invited.push_back(std::move(one));
           run_messages(*comm, invited);
         } else {
           for (LargeMessage& one : taken) {
             std::vector<LargeMessage> alone(1, std::move(one));
             run_messages(*comm, alone);
           }
           run_messages(*comm, invited);
         }
         return std::string{"right"};
       })) {
    EXPECT_EQ(result.text, "right");
  }
}

/// Where the CPU may touch nothing, not even four bytes.
TEST(LargeMessage, GoesThroughACommunicatorThatOnlyMoves) {
  for (const RankResult& result : run_ranks(2, [](bootstrap::Group& group) {
         CommOptions options = soft_options();
         options.moves_only = true;
         const auto comm = Communicator::create(group, options);
         std::vector<LargeMessage> messages;
         for (const std::size_t count : {std::size_t{1}, std::size_t{0}, std::size_t{5000}, kWindowBytes}) {
           for (const bool sends : {true, false}) messages.push_back(message(sends, 1 - group.rank(), count, count));
         }
         run_messages(*comm, messages);
         return std::string{"right"};
       })) {
    EXPECT_EQ(result.text, "right");
  }
}

struct OtherMessage {
  const char* name;
  std::size_t sent, received;  ///< elements
  collective::DType sent_type = collective::DType::kFloat32;
  const char* difference;
};

class OfAnotherKind : public ::testing::TestWithParam<OtherMessage> {};

TEST_P(OfAnotherKind, EndsBothAndTouchesNothing) {
  const OtherMessage& it = GetParam();
  const auto results = run_ranks(2, [&](bootstrap::Group& group) {
    const auto comm = Communicator::create(group, soft_options());
    const CanaryMemory memory{std::size_t{8} << 20};
    if (!comm->register_output(memory.segment(), memory.segment_bytes())) throw Error{"register", "failed"};
    const bool sends = group.rank() == 0;
    const Transfer transfer{sends, 1 - group.rank(), sends ? memory.in().data() : memory.out().data(),
                            sends ? it.sent : it.received, sends ? it.sent_type : collective::DType::kFloat32};
    if (sends) std::memset(memory.in().data(), 0x11, memory.in().size());
    const Ps begun = monotonic_now();
    while (comm->run(std::span{&transfer, 1}) && sends) continue;  // a small message may be gone
    if (comm->error() == nullptr) throw Error{"the disagreement", "was not seen"};
    if (monotonic_now() - begun > 2 * kSecond) throw Error{"the disagreement", "was seen too late"};
    if (comm->error()->kind != CommErrorKind::kDisagreement) throw Error{"another error", comm->error()->line};
    if (!CanaryMemory::untouched(memory.out())) throw Error{"memory", "was written"};
    if (const std::string dead = memory.dead_canary(); !dead.empty()) throw Error{"memory", dead};
    return comm->error()->line;
  });
  for (const RankResult& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.text;
    EXPECT_NE(result.text.find(it.difference), std::string::npos) << result.text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, OfAnotherKind,
    ::testing::Values(OtherMessage{"Longer", 500'000, 400'000, collective::DType::kFloat32, "on the element count: "},
                      OtherMessage{"Shorter", 400'000, 500'000, collective::DType::kFloat32, "on the element count: "},
                      OtherMessage{"LargeForASmallOne", 500'000, 1000, collective::DType::kFloat32,
                                   "on the element count: 500000 there, 1000 here"},
                      OtherMessage{"SmallForALargeOne", 1000, 500'000, collective::DType::kFloat32,
                                   "on the element count: 1000 there, 500000 here"},
                      OtherMessage{"ForNothing", 500'000, 0, collective::DType::kFloat32,
                                   "on the element count: 500000 there, 0 here"},
                      OtherMessage{"OfAnotherType", 500'000, 500'000, collective::DType::kInt32,
                                   "on the element type: "}),
    [](const auto& one) { return std::string{one.param.name}; });

TEST(LargeMessage, WhoseReceiverStaysAwayNamesIt) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    CommOptions options = soft_options();
    options.operation_timeout = kSecond;
    const auto comm = Communicator::create(group, options);
    if (group.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds{1500});
      return std::string{};
    }
    std::vector<LargeMessage> messages;
    messages.push_back(message(true, 1, 1, kWindowBytes));
    const Transfer transfer = messages[0].transfer();
    if (comm->run(std::span{&transfer, 1})) throw Error{"the message", "passed"};
    if (comm->error()->kind != CommErrorKind::kTimeout) throw Error{"another error", comm->error()->line};
    return comm->error()->line;
  });
  EXPECT_EQ(results[0].exit_code, 0) << results[0].text;
  EXPECT_NE(results[0].text.find("waiting for rank 1 on "), std::string::npos) << results[0].text;
  EXPECT_NE(results[0].text.find(" to receive: it has called nothing yet"), std::string::npos) << results[0].text;
}

/// Rank 1 dies in the middle of many messages.
TEST(LargeMessage, OfARankThatDiesNamesIt) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    const auto comm = Communicator::create(group, soft_options());
    std::thread killer;
    if (group.rank() == 1) {
      killer = std::thread{[] {
        std::this_thread::sleep_for(std::chrono::milliseconds{200});
        std::raise(SIGKILL);
      }};
    }
    std::vector<LargeMessage> messages;
    for (const bool sends : {true, false}) messages.push_back(message(sends, 1 - group.rank(), 7, kWindowBytes));
    const std::vector<Transfer> transfers{messages[0].transfer(), messages[1].transfer()};
    while (comm->run(std::span<const Transfer>{transfers})) continue;
    if (killer.joinable()) killer.join();
    return comm->error()->line;
  });
  EXPECT_EQ(results[1].exit_code, 128 + SIGKILL);
  EXPECT_EQ(results[0].exit_code, 0) << results[0].text;
  EXPECT_NE(results[0].text.find("rank 1"), std::string::npos) << results[0].text;
  EXPECT_LT(results[0].lived, 5 * kSecond);
}

}  // namespace
}  // namespace tensorwire::comm
