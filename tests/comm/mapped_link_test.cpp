// Ranks that map each other's memory: what a peer can do to another by lying, who may map what, when it is not
// possible, and that a sleeping rank is woken. That operations are right over it, the other tests of this folder show.
#include "comm/mapped_link.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "comm/verbs_link.hpp"
#include "rank_processes.hpp"
#include "tensors.hpp"

namespace tensorwire::comm {
namespace {

using collective::Immediate;

constexpr std::uint64_t kSlot = 4096 + collective::kSlotHeaderBytes;

CommOptions mapped_options() {
  CommOptions options = soft_options();
  options.path = PathChoice::kMapped;
  return options;
}

/// Both ends of a link between two ranks, without a runner.
struct Ends {
  explicit Ends(bootstrap::Group& group, bool may_block = false) {
    setup.rank = static_cast<std::uint32_t>(group.rank());
    setup.ranks = static_cast<std::uint32_t>(group.world_size());
    setup.depth = 2;
    setup.slot_bytes = kSlot;
    setup.receive_depth = 6;
    setup.send_depth = 128;
    setup.may_block = may_block;
    auto peers = MappedPeers::meet(group, MappedWish::kRequired,
                                   {setup.ranks, (2 * setup.ranks + 2) * kSlot, setup.receive_depth, may_block});
    memory = peers.get();
    setup.scratch = peers->scratch();
    setup.wake = peers->wake_descriptor();
    VerbsLinkOptions options;
    options.device.device = "soft";
    auto below = std::make_unique<VerbsLink>(group, setup, options);
    link.emplace(setup, std::move(peers), std::move(below), true);
  }

  LinkSetup setup;
  MappedPeers* memory = nullptr;
  std::optional<MappedLink> link;
};

/// The next event, or the failure's line.
std::string next_event(MappedLink& link, LinkEvent& event) {
  for (const Ps until = monotonic_now() + 10 * kSecond; monotonic_now() < until;) {
    const int count = link.poll({&event, 1});
    if (count < 0) return link.failure()->line;
    if (count > 0) return {};
  }
  return "nothing came";
}

TEST(MappedLink, MessagesAreReadWhereTheyLie) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    Ends ends{group};
    const std::uint32_t peer = 1 - ends.setup.rank;
    std::vector<std::byte> user(4096, std::byte{static_cast<unsigned char>(7 + ends.setup.rank)});
    std::byte* const kept = ends.setup.scratch.data() + 4 * kSlot;  // the first send slot
    std::memset(kept, 1 + static_cast<int>(ends.setup.rank), kSlot);
    const std::array<Piece, 2> gathered{Piece{kept, 64, 0}, Piece{user.data(), user.size(), 0}};
    const std::array<Piece, 1> in_place{Piece{kept, kSlot, 0}};
    const std::uint64_t slots = ends.setup.rank * 2 * kSlot;
    WriteRequest first{peer, gathered, slots, Immediate{0, 0, 0}.pack(), 77, false, 0};
    WriteRequest second{peer, in_place, slots + kSlot, Immediate{1, 0, 0}.pack(), collective::kNoToken, false, 0};
    if (!ends.link->post_write(first) || !ends.link->post_write(second)) return ends.link->failure()->line;
    std::memset(user.data(), 0, user.size());  // it was copied

    int arrivals = 0;
    bool sent = false;
    while (arrivals != 2 || !sent) {
      LinkEvent event;
      if (const std::string why = next_event(*ends.link, event); !why.empty()) return why;
      if (event.kind == LinkEventKind::kSent) {
        sent = event.token == 77;
        continue;
      }
      const bool gathered_one = ++arrivals == 1;
      const auto fill = static_cast<unsigned char>((gathered_one ? 7 : 1) + peer);
      if (event.peer != peer || event.in_place.offset != (gathered_one ? 0 : kSlot) || event.in_place.bytes != kSlot ||
          event.in_place.at[64] != std::byte{fill} || event.in_place.at[kSlot - 1] != std::byte{fill} ||
          event.in_place.at[0] != std::byte{static_cast<unsigned char>(1 + peer)}) {
        return std::string{"other bytes arrived"};
      }
    }
    group.barrier();
    return std::string{"well"};
  });
  for (const RankResult& result : results) EXPECT_EQ(result.text, "well");
}

struct Lie {
  const char* name;
  MappedNote note;
};

class LyingPeer : public testing::TestWithParam<Lie> {};

TEST_P(LyingPeer, IsNamedAndReadNowhereElse) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    Ends ends{group};
    if (group.rank() == 1) ends.memory->writer_to(0).push(GetParam().note);
    LinkEvent event;
    const std::string line = group.rank() == 0 ? next_event(*ends.link, event) : "";
    group.barrier();
    return line;
  });
  EXPECT_NE(results[0].text.find("rank 1 broke the protocol"), std::string::npos) << results[0].text;
}

constexpr std::uint64_t kScratch = 6 * kSlot;
constexpr std::uint64_t kFar = ~std::uint64_t{0};
INSTANTIATE_TEST_SUITE_P(
    Lies, LyingPeer,
    testing::Values(Lie{"behind_the_end", {0, kScratch, 0, 64}}, Lie{"over_the_end", {0, kScratch - 64, 0, 128}},
                    Lie{"far_away", {0, kFar - 63, 0, 64}}, Lie{"wraps_around", {0, 64, 0, kFar - 63}},
                    Lie{"longer_than_its_slots", {0, 0, 0, 2 * kSlot + 64}},
                    Lie{"over_its_slots", {0, 64, 2 * kSlot - 64, 128}},
                    Lie{"outside_of_its_slots", {0, 0, kFar - 63, 64}}, Lie{"crooked", {0, 33, 0, 64}}),
    [](const auto& test) { return test.param.name; });

/// What the runner is to make of notes that a link lets pass.
std::string all_reduce_with_liar(const std::function<void(MappedNote&)>& lie) {
  const auto results = run_ranks(2, [&](bootstrap::Group& group) {
    CommOptions options = mapped_options();
    options.operation_timeout = 5 * kSecond;
    if (group.rank() == 1) {
      options.fault_hook = [&](WriteRequest& request) {
        static std::array<Piece, 2> pieces;
        MappedNote note{request.immediate, 0, 0, 0};
        lie(note);
        request.immediate = note.immediate;
        if (note.bytes == 0) return;
        pieces[0] = request.pieces[0];
        pieces[0].bytes = note.bytes;
        request.pieces = std::span{pieces}.first(1);
      };
    }
    const auto comm = Communicator::create(group, options);
    std::vector<float> data(1000, 1.0F);
    const bool well = comm->all_reduce(data.data(), data.data(), data.size(), collective::DType::kFloat32);
    return well ? std::string{"well"} : comm->error()->line;
  });
  return results[0].text;
}

TEST(LyingPeerOfARunner, FewerBytesThanThePlanHas) {
  const std::string line = all_reduce_with_liar([](MappedNote& note) { note.bytes = 1024; });
  EXPECT_NE(line.find("rank 1 broke the protocol: its message has other bytes than the plan"), std::string::npos)
      << line;
}

TEST(LyingPeerOfARunner, NoSignature) {
  const std::string line = all_reduce_with_liar([](MappedNote& note) { note.bytes = 8; });
  EXPECT_NE(line.find("rank 1 broke the protocol: its message has no signature"), std::string::npos) << line;
}

TEST(LyingPeerOfARunner, ImmediateOutOfTheWindow) {
  const std::string line = all_reduce_with_liar([](MappedNote& note) { note.immediate = Immediate{9, 0, 0}.pack(); });
  EXPECT_NE(line.find("rank 1 broke the protocol: its sequence is outside of the window"), std::string::npos) << line;
}

TEST(MappedRegion, CanBeWrittenByItsOwnerOnlyAndKeepsItsSize) {
  SharedRegion mine{100'000};
  const PeerRegion seen{mine.descriptor(), 100'000};
  mine.bytes()[99'999] = std::byte{42};
  EXPECT_EQ(seen.bytes()[99'999], std::byte{42});
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, mine.descriptor(), 0), MAP_FAILED);
  EXPECT_NE(::ftruncate(mine.descriptor(), 0), 0);
  EXPECT_THROW((PeerRegion{mine.descriptor(), 4096}), Error);
  const UniqueFd open_to_all{::memfd_create("unsealed", MFD_CLOEXEC)};
  ASSERT_EQ(::ftruncate(open_to_all.get(), 4096), 0);
  EXPECT_THROW((PeerRegion{open_to_all.get(), 4096}), Error);
}

TEST(MappedPeers, WhereItIsRequiredAnotherHostIsAnError) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    setenv("TENSORWIRE_HOSTID", group.rank() == 0 ? "here" : "there", 1);
    const auto comm = Communicator::create(group, mapped_options());
    return std::string{"made"};
  });
  for (const RankResult& result : results) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.text.find("it is on another host (see TENSORWIRE_HOSTID)"), std::string::npos) << result.text;
  }
}

TEST(MappedPeers, APlaceThatTakesNoSocketIsNamedOnce) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    setenv("TMPDIR", "/nonexistent", 1);
    const auto comm = Communicator::create(group, mapped_options());
    return std::string{"made"};
  });
  for (const RankResult& result : results)
    EXPECT_NE(result.text.find("/nonexistent"), std::string::npos) << result.text;
}

TEST(MappedPeers, RanksOfTwoHostsUseWhatTheyCan) {
  // Two and two: rings and trees pass on to the other host what lies in a peer's memory.
  const auto results = run_ranks(4, [](bootstrap::Group& group) {
    setenv("TENSORWIRE_HOSTID", group.rank() < 2 ? "here" : "there", 1);
    setenv("TENSORWIRE_MAPPED", "auto", 1);
    CommOptions options = soft_options();
    options.thresholds.ring_bytes = 128 << 10;
    const auto comm = Communicator::create(group, options);
    for (std::uint64_t seed = 1; seed != 40; ++seed) {
      const std::size_t count = seed % 4 == 0 ? 3 : seed * 4001;
      const auto input = input_of(seed, comm->rank(), count, collective::DType::kInt32);
      std::vector<std::byte> out(input.size());
      if (!comm->all_reduce(input.data(), out.data(), count, collective::DType::kInt32)) return comm->error()->line;
      if (out != sum_of(seed, comm->size(), count, collective::DType::kInt32)) return std::string{"wrong sum"};
      Call call;
      call.collective = collective::Collective::kBroadcast;
      call.root = static_cast<int>(seed % 4);
      call.in = input.data();
      call.out = out.data();
      call.count = count;
      call.dtype = collective::DType::kInt32;
      if (!comm->run(call)) return comm->error()->line;
      if (out != input_of(seed, call.root, count, collective::DType::kInt32)) return std::string{"wrong broadcast"};
    }
    std::string paths;
    for (const PeerReport& peer : comm->stats().peers) paths += peer.path.starts_with("mapped memory") ? "m" : "-";
    return paths;
  });
  EXPECT_EQ(results[0].text, "m--");
  EXPECT_EQ(results[1].text, "m--");
  EXPECT_EQ(results[2].text, "--m");
  EXPECT_EQ(results[3].text, "--m");
}

TEST(MappedLink, ASleeperIsWoken) {
  const auto results = run_ranks(2, [](bootstrap::Group& group) {
    Ends ends{group, true};
    constexpr int kRounds = 300;
    Ps slept = 0;
    for (int round = 0; round < kRounds; ++round) {
      if (group.rank() == 1) {
        timespec nap{0, 500'000};
        nanosleep(&nap, nullptr);
        WriteRequest request;
        request.peer = 0;
        request.immediate = Immediate{0, 0, collective::kCreditMessage}.pack();
        if (!ends.link->post_write(request)) return ends.link->failure()->line;
        continue;
      }
      LinkEvent event;
      const Ps began = monotonic_now();
      while (ends.link->poll({&event, 1}) == 0) ends.link->wait(20 * kSecond);
      slept = std::max(slept, monotonic_now() - began);
    }
    group.barrier();
    return slept < 10 * kSecond ? std::string{"woken"} : fmt::format("slept {} ms", slept / kMillisecond);
  });
  for (const RankResult& result : results) EXPECT_EQ(result.text, "woken");
}

}  // namespace
}  // namespace tensorwire::comm
