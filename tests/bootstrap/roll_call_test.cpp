// Roll calls and accusations: everyone learns what everyone does, and who is to blame. A stopped process answers
// neither, and learns of both when it goes on. Where that is rank 0, the others speak to one another.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "base/clock.hpp"
#include "bootstrap/hub.hpp"
#include "bootstrap/messages.hpp"
#include "ranks.hpp"

namespace tensorwire::bootstrap::testing {
namespace {

constexpr std::uint16_t kTopic = 7;

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span{text});
  return {bytes.begin(), bytes.end()};
}

std::string text_of(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

void tell(Group& group, std::uint16_t topic, const std::string& text) {
  group.set_reporter(topic, [text] { return bytes_of(text); });
}

/// What the others answered to a question asked now, at most a second later: "1:one 2:two ".
std::string answers(Group& group, std::uint16_t topic, std::size_t wanted) {
  const Ps asked = monotonic_now();
  std::string text;
  for (std::size_t count = 0; count < wanted && monotonic_now() - asked < kSecond;) {
    group.roll_call(topic);
    std::this_thread::sleep_for(std::chrono::milliseconds{25});
    text.clear();
    count = 0;
    const std::vector<Report> reports = group.reports(topic);
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
      if (static_cast<int>(rank) == group.rank() || reports[rank].received < asked) continue;
      text += std::to_string(rank) + ":" + text_of(reports[rank].body) + " ";
      ++count;
    }
  }
  return text;
}

TEST(RollCalls, AnyRankHearsFromAllOthersWhoHaveNoCallUnderWay) {
  for (const int asking : {0, 2}) {
    const auto errors = run_world(3, [&](Group& group) {
      tell(group, kTopic, "rank " + std::to_string(group.rank()));
      group.barrier();
      if (group.rank() == asking) {
        EXPECT_EQ(answers(group, kTopic, 2), asking == 0 ? "1:rank 1 2:rank 2 " : "0:rank 0 1:rank 1 ");
      }
      group.barrier();
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

TEST(RollCalls, TopicsAreApartAndWhoHasNothingToTellSaysNothing) {
  const auto errors = run_world(2, [](Group& group) {
    tell(group, kTopic, "seven");
    tell(group, kTopic + 1, "eight");
    group.barrier();
    if (group.rank() == 1) {
      EXPECT_EQ(answers(group, kTopic, 1), "0:seven ");
      EXPECT_EQ(answers(group, kTopic + 1, 1), "0:eight ");
      EXPECT_EQ(answers(group, kTopic + 2, 1), "0: ");
    }
    group.barrier();
    group.set_reporter(kTopic, {});
    group.barrier();
    if (group.rank() == 1) {
      EXPECT_EQ(answers(group, kTopic, 1), "0: ");
    }
    group.barrier();
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(RollCalls, AnAccusationIsKnownToAllWithTheAccuser) {
  for (const int accuser : {0, 1}) {
    const auto errors = run_world(3, [&](Group& group) {
      group.barrier();
      if (group.rank() == accuser) group.accuse(2, FailureKind::kDisagrees, "it\nreduced what we gathered");
      const std::string failure = await_failure(group);
      EXPECT_EQ(failure.substr(0, 12), "rank 2 after");
      EXPECT_NE(failure.find("it?reduced what we gathered"), std::string::npos) << failure;
      const auto failed = group.failed_rank();
      ASSERT_TRUE(failed);
      EXPECT_EQ(failed->kind, FailureKind::kDisagrees);
      EXPECT_EQ(failed->told_by, accuser);
      EXPECT_EQ(failed->host, group.host(2));
      std::this_thread::sleep_for(std::chrono::milliseconds{100});  // nobody leaves before all know
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

TEST(RollCalls, OfAFailedGroupAreAnsweredToo) {
  const auto errors = run_world(3, [](Group& group) {
    tell(group, kTopic, "here");
    group.barrier();
    if (group.rank() == 1) group.abort("enough");
    EXPECT_EQ(await_failure(group).substr(0, 6), "rank 1");
    if (group.rank() == 2) {
      EXPECT_EQ(answers(group, kTopic, 2), "0:here 1:here ");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{300});
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(RollCalls, AStoppedProcessDoesNotAnswerAndLearnsOfItsAccusationWhenItGoesOn) {
  const std::uint16_t port = free_ports();
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back(options_of(rank, 3, port), [](Group& group) -> std::string {
      tell(group, kTopic, "here");
      group.barrier();
      if (group.rank() == 1) {
        raise(SIGSTOP);
        return await_failure(group);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
      std::string words;
      if (group.rank() == 2) {
        words = answers(group, kTopic, 2);
        group.accuse(1, FailureKind::kSilent, "it does not answer");
      }
      const std::string failure = await_failure(group);
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
      return words + failure.substr(0, 6);
    });
  }
  for (const RankProcess& rank : ranks) rank.wait_joined();
  EXPECT_EQ(ranks[2].last_words(), "0:here rank 1\n");
  EXPECT_EQ(ranks[0].last_words(), "rank 1\n");
  ranks[1].resume();
  const std::string woken = ranks[1].last_words();
  EXPECT_EQ(woken.substr(0, 12), "rank 1 after") << woken;
  EXPECT_NE(woken.find("it does not answer"), std::string::npos) << woken;
}

/// Four ranks: rank 0 stops itself and, when it goes on, tells of what it then hears; the others are given to `body`
/// while it is stopped.
std::vector<RankProcess> without_rank_0(const std::function<std::string(Group&)>& body) {
  const std::uint16_t port = free_ports();
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back(options_of(rank, 4, port), [body](Group& group) -> std::string {
      tell(group, kTopic, "here");
      group.barrier();
      if (group.rank() == 0) {
        raise(SIGSTOP);
        return await_failure(group);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds{50});
      const std::string words = body(group);
      std::this_thread::sleep_for(std::chrono::milliseconds{100});  // nobody leaves before all know
      return words;
    });
  }
  for (const RankProcess& rank : ranks) rank.wait_joined();
  return ranks;
}

TEST(RollCalls, WhenRankZeroIsStoppedTheOthersSpeakToOneAnother) {
  const auto ranks = without_rank_0([](Group& group) {
    std::string words;
    if (group.rank() == 2) {
      words = answers(group, kTopic, 2);
      group.accuse(0, FailureKind::kSilent, "it does not answer");
    }
    const std::string failure = await_failure(group);
    return words + failure.substr(0, 6) + failure.substr(failure.find(':'));
  });
  EXPECT_EQ(ranks[1].last_words(), "rank 0: it does not answer\n");
  EXPECT_EQ(ranks[2].last_words(), "1:here 3:here rank 0: it does not answer\n");
  EXPECT_EQ(ranks[3].last_words(), "rank 0: it does not answer\n");
  ranks[0].resume();
  const std::string woken = ranks[0].last_words();
  EXPECT_EQ(woken.substr(0, 12), "rank 0 after") << woken;
  EXPECT_NE(woken.find("it does not answer"), std::string::npos) << woken;
}

TEST(RollCalls, WhatIsSaidToASilentRankZeroReachesTheOthersWithoutAQuestion) {
  const auto ranks = without_rank_0([](Group& group) {
    if (group.rank() == 1) group.abort("enough");
    const std::string failure = await_failure(group);
    return failure.substr(0, 6) + failure.substr(failure.find(':'));
  });
  for (const int rank : {1, 2, 3}) EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].last_words(), "rank 1: enough\n");
}

TEST(RollCalls, ADeathIsSeenOnADirectLineToo) {
  const auto ranks = without_rank_0([](Group& group) -> std::string {
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds{5});
    const std::string words = group.rank() == 3 ? answers(group, kTopic, 2) : "";
    return words + await_failure(group).substr(0, 6);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds{300});
  ranks[1].kill();
  EXPECT_EQ(ranks[3].last_words(), "1:here 2:here rank 1\n");
}

TEST(DirectLines, OnlyARankIsBelieved) {
  const std::uint16_t port = free_ports();
  std::array<Joined, 3> joined;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const GroupOptions options = options_of(rank, 3, port);
      joined[static_cast<std::size_t>(rank)] = rank == 0 ? serve_rendezvous(options) : enter_rendezvous(options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  Hub hub{1, std::move(joined[1]), kSecond};
  // Rank 2 speaks for itself here.
  const auto tell = [&](int to, const std::string& secret) {
    int error = 0;
    Socket line = connect_to(joined[2].doors[1], monotonic_now() + kSecond, error);
    Caller caller{2, static_cast<std::uint32_t>(to), {}};
    caller.proof = prove(secret, proof_message(caller));
    write_some(line, *encode_frame(FrameType::kCaller, encode(caller)));
    write_some(line, *encode_frame(FrameType::kFailed, encode(Failure{0, {}, "gone", FailureKind::kSilent, 2})));
    return line;
  };
  for (const auto& [to, secret] : {std::pair{1, std::string{"a guess"}}, {0, joined[2].line_secret}}) {
    const Socket line = tell(to, secret);
    std::byte byte;
    EXPECT_TRUE(wait_for(line.fd(), POLLIN, monotonic_now() + kSecond));
    EXPECT_NE(read_some(line, {&byte, 1}).status, IoStatus::kDone) << "it is hung up";
    EXPECT_FALSE(hub.failed());
  }
  const Socket line = tell(1, joined[2].line_secret);
  for (int i = 0; i < 1000 && !hub.failed(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  ASSERT_TRUE(hub.failed());
  EXPECT_EQ(hub.failed_rank()->rank, 0);
  EXPECT_EQ(hub.failed_rank()->told_by, 2);
}

}  // namespace
}  // namespace tensorwire::bootstrap::testing
