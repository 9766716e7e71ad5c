// Ranks as threads on 127.0.0.1: the rendezvous, the exchange, and what goes wrong at either.
#include "bootstrap/group.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include "base/error.hpp"
#include "bootstrap/rendezvous.hpp"
#include "ranks.hpp"

namespace tensorwire::bootstrap::testing {
namespace {

Bytes pattern(int rank, std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + static_cast<std::size_t>(rank));
  return bytes;
}

void expect_no_errors(const std::vector<std::string>& errors) {
  for (std::size_t i = 0; i < errors.size(); ++i) EXPECT_EQ(errors[i], "") << "rank " << i;
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

class Worlds : public ::testing::TestWithParam<int> {};

TEST_P(Worlds, GatherBroadcastBarrierInTurn) {
  const int n = GetParam();
  expect_no_errors(run_world(n, [n](Group& group) {
    ASSERT_EQ(group.world_size(), n);
    for (int round = 0; round < 20; ++round) {
      const auto all = group.all_gather(pattern(group.rank(), static_cast<std::size_t>(group.rank() * 7 + round)));
      ASSERT_EQ(all.size(), static_cast<std::size_t>(n));
      for (int rank = 0; rank < n; ++rank) {
        EXPECT_EQ(all[static_cast<std::size_t>(rank)], pattern(rank, static_cast<std::size_t>(rank * 7 + round)));
      }
      const int root = round % n;
      EXPECT_EQ(group.broadcast(pattern(group.rank(), 33), root), pattern(root, 33));
      group.barrier();
    }
    EXPECT_EQ(group.host(n - 1), own_host_name());
    EXPECT_FALSE(group.failed());
  }));
}

INSTANTIATE_TEST_SUITE_P(OneToEight, Worlds, ::testing::Range(1, 9));

TEST(Group, ABarrierHoldsEveryoneBack) {
  std::atomic<int> arrived{0};
  expect_no_errors(run_world(4, [&](Group& group) {
    std::this_thread::sleep_for(std::chrono::milliseconds{group.rank() * 20});
    arrived.fetch_add(1);
    group.barrier();
    EXPECT_EQ(arrived.load(), 4);
  }));
}

TEST(Group, PayloadsOfAMegabyte) {
  expect_no_errors(run_world(4, [](Group& group) {
    const auto all = group.all_gather(pattern(group.rank(), 1U << 20));
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(all[static_cast<std::size_t>(rank)], pattern(rank, 1U << 20));
  }));
}

TEST(Group, APayloadAboveTheLimitIsRefusedBeforeItTravels) {
  const auto errors = run_world(2, [](Group& group) {
    if (group.rank() == 1) (void)group.all_gather(Bytes(kMaxPayload + 1));
  });
  EXPECT_HAS(errors[1], "more than 16MiB");
}

TEST(Group, MissingRanksAreNamedOnAll) {
  const std::uint16_t port = free_ports();
  const Ps timeout = 600 * kMillisecond;
  const auto errors =
      run_threads({options_of(0, 5, port, timeout), options_of(2, 5, port, timeout + kSecond)}, [](Group&) {});
  for (const std::string& error : errors) EXPECT_HAS(error, "ranks 1, 3 and 4 of 5 did not come within");
}

TEST(Group, NoServerIsAnErrorWithTheAddress) {
  const std::uint16_t port = free_ports();
  const auto errors = run_threads({options_of(1, 2, port, 300 * kMillisecond)}, [](Group&) {});
  EXPECT_HAS(errors[0], "rank 0 was not there within 300ms");
  EXPECT_HAS(errors[0], "127.0.0.1:" + std::to_string(port));
}

TEST(Group, WorldSizesThatDisagreeAreNamedOnAll) {
  const std::uint16_t port = free_ports();
  const auto errors =
      run_threads({options_of(0, 3, port), options_of(1, 3, port), options_of(2, 4, port)}, [](Group&) {});
  for (const std::string& error : {errors[0], errors[2]}) {
    EXPECT_HAS(error, "world size");
    EXPECT_HAS(error, "says 3");
    EXPECT_HAS(error, "rank 2 on");
    EXPECT_HAS(error, "says 4");
  }
  EXPECT_NE(errors[1], "");
}

TEST(Group, ARankStartedTwiceIsNamed) {
  const std::uint16_t port = free_ports();
  const auto errors =
      run_threads({options_of(0, 3, port), options_of(1, 3, port), options_of(1, 3, port)}, [](Group&) {});
  for (const std::string& error : errors) EXPECT_HAS(error, "rank 1 was started twice");
}

TEST(Group, AnUnknownHostIsNamed) {
  GroupOptions options = options_of(1, 2, free_ports(), kSecond);
  options.master_address = "no-such-host.invalid";
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run_threads({options}, [](Group&) {});
  EXPECT_HAS(errors[0], "no-such-host.invalid");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds{3}) << "the resolver's own bound is longer";
}

class Secret : public ::testing::Test {
 protected:
  std::vector<std::string> join(const std::string& first, const std::string& second) {
    const std::uint16_t port = free_ports();
    auto a = options_of(0, 2, port, 700 * kMillisecond);
    auto b = options_of(1, 2, port, 700 * kMillisecond);
    a.secret = first;
    b.secret = second;
    return run_threads({a, b}, [](Group& group) { group.barrier(); });
  }
};

TEST_F(Secret, TheSameOnBothLetsIn) { expect_no_errors(join("open sesame", "open sesame")); }

TEST_F(Secret, AWrongOneIsRefusedAndNeverPrinted) {
  const auto errors = join("open sesame", "open barley");
  EXPECT_HAS(errors[0], "rank 1 of 2 did not come within 700ms; a process at 127.0.0.1 gave a wrong secret");
  EXPECT_HAS(errors[1], "secret is wrong");
  for (const std::string& error : errors) EXPECT_EQ(error.find("open"), std::string::npos) << error;
}

TEST_F(Secret, OnOneSideOnlyIsRefused) {
  EXPECT_HAS(join("open sesame", "")[1], "rank 0 asks for a shared secret");
  EXPECT_HAS(join("", "open sesame")[1], "rank 0 has none");
}

TEST(Strangers, GarbageAndSilenceDisturbNobody) {
  const std::uint16_t port = free_ports();
  std::vector<int> strangers;
  std::thread crowd{[&] {
    for (int i = 0; i < 40; ++i) {
      const int fd = connect_stranger(port);
      strangers.push_back(fd);  // every third one stays silent
      const std::string garbage = i % 3 == 0 ? "" : i % 3 == 1 ? "GET / HTTP/1.1\r\n\r\n" : std::string(900, '\0');
      (void)send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL);
    }
  }};
  std::vector<std::string> errors;
  std::thread ranks{[&] {
    errors = run_threads({options_of(0, 3, port), options_of(1, 3, port)}, [](Group& group) { group.barrier(); });
  }};
  crowd.join();
  const auto last = run_threads({options_of(2, 3, port)}, [](Group& group) { group.barrier(); });
  ranks.join();
  expect_no_errors(errors);
  expect_no_errors(last);
  for (const int fd : strangers) close(fd);
}

TEST(Ports, AStoreOfAnotherProgramOnTheMasterPortIsStoodAside) {
  const std::uint16_t port = free_ports();
  int error = 0;
  // As a torchrun agent does: it listens, and says nothing before it is spoken to.
  const Socket store = listen_on(resolve("127.0.0.1", kNever).front().with_port(port), error);
  ASSERT_TRUE(store) << error;
  const auto errors = run_threads({options_of(0, 3, port), options_of(1, 3, port), options_of(2, 3, port)},
                                  [](Group& group) { group.barrier(); });
  expect_no_errors(errors);
}

TEST(Ports, TwoJobsWithNeighbouringPortsDoNotMix) {
  const std::uint16_t port = free_ports();
  int error = 0;
  const Socket store = listen_on(resolve("127.0.0.1", kNever).front().with_port(port), error);
  ASSERT_TRUE(store) << error;
  const auto next = static_cast<std::uint16_t>(port + 1);
  std::vector<GroupOptions> ranks;
  for (const std::uint16_t base : {next, port}) {
    for (int rank = 0; rank < 2; ++rank) ranks.push_back(options_of(rank, 2, base));
  }
  ranks[0].world_size = ranks[1].world_size = 2;
  const auto errors = run_threads(ranks, [](Group& group) { group.barrier(); });
  expect_no_errors(errors);
}

TEST(Ports, TheMasterPortIsFreeAgainOnceAllAreIn) {
  const std::uint16_t port = free_ports();
  std::atomic<bool> free_again{false};
  const auto errors = run_threads({options_of(0, 2, port), options_of(1, 2, port)}, [&](Group& group) {
    group.barrier();
    if (group.rank() == 0) {
      int error = 0;
      free_again = static_cast<bool>(listen_on(resolve("127.0.0.1", kNever).front().with_port(port), error));
    }
    group.barrier();
  });
  expect_no_errors(errors);
  EXPECT_TRUE(free_again) << "torch.distributed of the same job may want to listen there";
}

TEST(Calls, WhoDoesNotComeToABarrierIsNamedOnAll) {
  const auto errors = run_world(4, [](Group& group) {
    group.barrier();
    if (group.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds{600});
      return;
    }
    group.barrier(200 * kMillisecond);
  });
  for (const int rank : {0, 1, 3}) EXPECT_HAS(errors[static_cast<std::size_t>(rank)], "rank 2 did not come");
  EXPECT_EQ(errors[2], "");
}

TEST(Calls, DifferentCallsAreAnErrorOnAll) {
  std::latch all_know{3};  // who ends before another has called would be named as the one that failed
  const auto errors = run_world(3, [&](Group& group) {
    try {
      if (group.rank() == 1) {
        (void)group.broadcast({}, 0);
      } else {
        group.barrier();
      }
    } catch (const Error&) {
      all_know.arrive_and_wait();
      throw;
    }
  });
  for (const std::string& error : errors) EXPECT_HAS(error, "different calls");
}

TEST(Calls, ABroadcastFromNobodyIsRefused) {
  const auto errors = run_world(2, [](Group& group) { (void)group.broadcast({}, 2); });
  for (const std::string& error : errors) EXPECT_HAS(error, "no rank 2");
}

TEST(Leaving, IsNoDeathInAnyOrder) {
  for (int first = 0; first < 3; ++first) {
    expect_no_errors(run_world(3, [first](Group& group) {
      group.barrier();
      if (group.rank() != first) std::this_thread::sleep_for(std::chrono::milliseconds{80 + 40 * group.rank()});
      EXPECT_FALSE(group.failed()) << "rank " << group.rank();
      group.leave();
      EXPECT_FALSE(group.failed());
      group.leave();
    }));
  }
}

TEST(Leaving, WhoStillWaitsForTheOneThatLeftIsTold) {
  for (int leaver = 0; leaver < 3; ++leaver) {
    const auto errors = run_world(3, [leaver](Group& group) {
      group.barrier();
      if (group.rank() == leaver) return;
      std::string error;
      try {
        group.barrier();
      } catch (const std::exception& thrown) {
        error = thrown.what();
      }
      EXPECT_HAS(error, "rank " + std::to_string(leaver) + " on");
      EXPECT_HAS(error, "left");
      std::this_thread::sleep_for(std::chrono::milliseconds{100});  // the others must not see this rank go
    });
    expect_no_errors(errors);
  }
}

TEST(Aborting, IsKnownToAllWithItsReason) {
  for (int who = 0; who < 3; ++who) {
    expect_no_errors(run_world(3, [who](Group& group) {
      group.barrier();
      if (group.rank() == who) group.abort("out of memory\nin layer 3");
      const std::string failure = await_failure(group);
      EXPECT_HAS(failure, "rank " + std::to_string(who));
      EXPECT_HAS(failure, "out of memory?in layer 3");
      EXPECT_THROW(group.barrier(), std::exception);
      EXPECT_THROW(group.throw_if_failed("decode"), std::exception);
    }));
  }
}

TEST(Aborting, AnExceptionThatUnwindsAGroupAbortsIt) {
  const auto errors = run_world(2, [](Group& group) {
    group.barrier();
    if (group.rank() == 1) throw std::runtime_error{"mine"};
    EXPECT_HAS(await_failure(group), "rank 1");
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "mine");
}

}  // namespace
}  // namespace tensorwire::bootstrap::testing
