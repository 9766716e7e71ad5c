// Many processes at one address: eight on one host write to eight on another, each to each, over a virtual cable
// between two network namespaces; some are killed in the midst of it, and others come.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <chrono>
#include <csignal>
#include <deque>
#include <new>
#include <thread>

#include "base/error.hpp"
#include "content.hpp"
#include "endpoint.hpp"
#include "softhca/own_network.hpp"

namespace tensorwire::softhca::testing {
namespace {

using namespace std::chrono_literals;
using transport::WcOpcode;
using transport::WcStatus;

constexpr int kSides = 2;
constexpr int kFirst = 8;    ///< processes of a side that are there from the start
constexpr int kWorkers = 9;  ///< and one that comes after the kills
constexpr std::uint32_t kMessagesEach = 40;
constexpr std::uint32_t kSlotsOfLane = 4;
constexpr std::uint32_t kLongest = 64 * 1024;
constexpr std::array<int, kSides> kVictim{3, 5};
constexpr std::uint32_t kKillAfter = 5;  ///< messages that a victim has verified
constexpr Ps kProcessesBound = 60 * kSecond;

/// What a worker tells the others, out of band.
struct Card {
  std::array<Address, kWorkers> lanes;  ///< by peer
  std::atomic<bool> published{false};
  std::atomic<bool> dead{false};
  std::array<std::atomic<std::uint32_t>, kWorkers> verified{};  ///< messages of each peer that were found right
  std::atomic<std::uint32_t> total_verified{0};
  std::atomic<Ps> longest_silence{0};
  std::atomic<std::uint64_t> strays{0};
};

struct Desk {
  std::array<std::array<Card, kWorkers>, kSides> cards;
  std::atomic<bool> cable_plugged{false};
  std::atomic<bool> late_ones_may_come{false};
};

Desk* make_desk() {
  void* const at = ::mmap(nullptr, sizeof(Desk), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? nullptr : new (at) Desk;
}

template <class Condition>
bool wait_until(Condition condition, Ps bound = kProcessesBound) {
  const Ps end = monotonic_now() + bound;
  while (!condition()) {
    if (monotonic_now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

/// One worker's queue pair towards one peer: messages both ways, at most kSlotsOfLane of which are on their way.
class Lane {
 public:
  Lane(const std::shared_ptr<Hca>& hca, Desk& desk, int side, int self, int peer, transport::MtuCode mtu)
      : desk_(desk), side_(side), self_(self), peer_(peer), end_(hca, settings(mtu)) {}

  [[nodiscard]] Address address() const { return end_.address(); }
  bool connect() {
    there_ = desk_.cards[1 - side_][peer_].lanes[self_];
    return end_.connect(there_) == 0 && end_.post_receives(2 * kSlotsOfLane) == 0;
  }

  /// Moves on; false when something is wrong.
  bool step(Ps now) {
    if (finished()) return true;
    while (may_send()) {
      if (!send()) return false;
    }
    std::array<transport::Completion, 1> one;
    while (end_.cq->poll(one) == 1) {
      if (!take(one[0], now)) return false;
    }
    return true;
  }

  /// All messages both ways are done; or the peer is dead, and we know it from our own queue pair.
  [[nodiscard]] bool finished() const {
    if (failed_) return true;
    if (theirs().dead.load() && sent_ == kMessagesEach && completed_ == kMessagesEach) return true;
    return completed_ == kMessagesEach && verified_ == kMessagesEach;
  }
  [[nodiscard]] bool complete() const { return completed_ == kMessagesEach && verified_ == kMessagesEach; }
  void describe(const char* what) const {
    std::fprintf(stderr, "side %d, %d to %d: %s (sent %u, completed %u, verified %u)\n", side_, self_, peer_, what,
                 sent_, completed_, verified_);
  }
  [[nodiscard]] Ps last_progress() const { return last_progress_; }
  [[nodiscard]] int peer() const { return peer_; }

 private:
  static Endpoint::Settings settings(transport::MtuCode mtu) {
    return {.bytes = 2 * kSlotsOfLane * kLongest, .depth = 16, .timeout = 14, .retry_cnt = 7, .mtu = mtu};
  }
  [[nodiscard]] Card& mine() const { return desk_.cards[side_][self_]; }
  [[nodiscard]] Card& theirs() const { return desk_.cards[1 - side_][peer_]; }
  /// The first half of the memory is written by the peer, the second half holds what is sent.
  [[nodiscard]] static std::uint64_t arrivals_at(std::uint32_t number) {
    return std::uint64_t{number % kSlotsOfLane} * kLongest;
  }
  [[nodiscard]] static std::uint64_t departures_at(std::uint32_t number) {
    return std::uint64_t{kSlotsOfLane + number % kSlotsOfLane} * kLongest;
  }

  /// The slot at the peer is free, and ours too: go-back-N may read a source again until it is acknowledged. A dead
  /// peer frees nothing; what is sent to it shall fail.
  [[nodiscard]] bool may_send() const {
    if (failed_ || sent_ == kMessagesEach || sent_ - completed_ == kSlotsOfLane) return false;
    return theirs().dead.load() || sent_ - theirs().verified[self_].load() < kSlotsOfLane;
  }

  bool send() {
    Content content(side_, self_, peer_, sent_, kLongest);
    std::byte* const from = end_.memory.data() + departures_at(sent_);
    content.write(from);
    const transport::Sge sge{reinterpret_cast<std::uint64_t>(from), content.bytes(), end_.key};
    transport::SendWr wr;
    wr.opcode = transport::WrOpcode::kWriteImm;
    wr.immediate = sent_;
    wr.remote_address = there_.buffer + arrivals_at(sent_);
    wr.rkey = there_.rkey;
    wr.sges = {&sge, 1};
    if (end_.hca->post_send(end_.qp, wr, false) != 0) {
      describe("a post is refused");
      return false;
    }
    ++sent_;
    return true;
  }

  bool take(const transport::Completion& done, Ps now) {
    if (done.status != WcStatus::kSuccess) {
      if (theirs().dead.load() && (done.status == WcStatus::kRetryExceeded || failed_)) {
        failed_ = true;
        return true;
      }
      describe(("completion status " + std::to_string(static_cast<int>(done.status))).c_str());
      return false;
    }
    last_progress_ = now;
    if (done.opcode != WcOpcode::kRecvWithImm) {
      ++completed_;
      return true;
    }
    Content content(1 - side_, peer_, self_, verified_, kLongest);
    if (done.immediate != verified_ || done.byte_len != content.bytes() ||
        !content.equals(end_.memory.data() + arrivals_at(verified_))) {
      describe("a wrong message");
      return false;
    }
    ++verified_;
    if (end_.post_receives(1) != 0) return false;
    mine().total_verified.fetch_add(1);
    mine().verified[peer_].store(verified_);
    return true;
  }

  Desk& desk_;
  int side_, self_, peer_;
  Endpoint end_;
  Address there_;
  std::uint32_t sent_ = 0, completed_ = 0, verified_ = 0;
  bool failed_ = false;
  Ps last_progress_ = 0;
};

std::shared_ptr<Hca> open_cable_end(int side) {
  const std::string interface = "tw" + std::to_string(side);
  for (const DeviceInfo& device : list_devices()) {
    if (device.interface == interface) return open_at(device, device.ipv4, packets_only());
  }
  std::fprintf(stderr, "no device on %s\n", interface.c_str());
  ::_exit(kFailed);
}

int work(Desk& desk, int side, int self, transport::MtuCode mtu) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<int> peers;
  if (self < kFirst) {
    for (int peer = 0; peer < kFirst; ++peer) peers.push_back(peer);
  } else {
    peers.push_back(self);
    if (!wait_until([&] { return desk.late_ones_may_come.load(); })) return kFailed;
  }
  if (!wait_until([&] { return desk.cable_plugged.load(); })) return kFailed;

  const std::shared_ptr<Hca> hca = open_cable_end(side);
  std::deque<Lane> lanes;
  Card& card = desk.cards[side][self];
  for (const int peer : peers) {
    card.lanes[peer] = lanes.emplace_back(hca, desk, side, self, peer, mtu).address();
  }
  card.published = true;
  const auto published = [&] {
    return std::ranges::all_of(peers, [&](int peer) { return desk.cards[1 - side][peer].published.load(); });
  };
  if (!wait_until(published)) return kFailed;
  if (!std::ranges::all_of(lanes, &Lane::connect)) return kFailed;

  const Ps end = monotonic_now() + kProcessesBound;
  Ps last = monotonic_now();
  Ps longest = 0;
  const auto unfinished = [&] { return !std::ranges::all_of(lanes, &Lane::finished); };
  while (unfinished()) {
    const Ps now = monotonic_now();
    for (Lane& lane : lanes) {
      if (!lane.step(now)) return kFailed;
      // How long nothing came or went, while there was something to come from the living.
      if (!lane.finished() && !desk.cards[1 - side][lane.peer()].dead) last = std::max(last, lane.last_progress());
    }
    const bool living_wait = std::ranges::any_of(
        lanes, [&](const Lane& lane) { return !lane.finished() && !desk.cards[1 - side][lane.peer()].dead; });
    if (living_wait) longest = std::max(longest, now - last);
    if (now > end) {
      for (const Lane& lane : lanes) {
        if (!lane.finished()) lane.describe("not done in time");
      }
      return kFailed;
    }
    std::this_thread::yield();
  }
  for (const Lane& lane : lanes) {
    if (!lane.complete() && !desk.cards[1 - side][lane.peer()].dead) return kFailed;
  }
  card.longest_silence = longest;
  std::uint64_t wrong = 0;
  for (const auto& [name, value] : hca->counters()) {
    if (name == "strays_passed_on" || name == "strays_lost") card.strays += value;
    if (name == "rx_icrc_encapsulated" || name == "rx_malformed") wrong += value;
  }
  if (wrong != 0)
    std::fprintf(stderr, "side %d, %d: %lu wrong packets\n", side, self, static_cast<unsigned long>(wrong));
  // Stays until its peers have their acknowledgements: the last one may have been lost.
  std::this_thread::sleep_for(300ms);
  return wrong == 0 ? kPassed : kFailed;
}

/// The workers of a side: all but the victim must pass; the victim is killed when it is well at work.
int side_of_cable(Desk& desk, int side, transport::MtuCode mtu) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::deque<ChildProcess> workers;
  for (int self = 0; self < kWorkers; ++self) workers.emplace_back([&] { return work(desk, side, self, mtu); });

  Card& victim = desk.cards[side][kVictim[side]];
  Checks check;
  check.that(wait_until([&] { return victim.total_verified >= kKillAfter; }), "the victim got to work");
  victim.dead = true;
  workers[static_cast<std::size_t>(kVictim[side])].end();
  desk.late_ones_may_come = true;
  for (int self = 0; self < kWorkers; ++self) {
    if (self == kVictim[side]) continue;
    const bool passed = workers[static_cast<std::size_t>(self)].wait(70s) == kPassed;
    check.that(passed, ("worker " + std::to_string(self) + " of side " + std::to_string(side)).c_str());
  }
  return check.result();
}

int eight_against_eight(int mtu, transport::MtuCode path_mtu) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Desk* const desk = make_desk();
  if (desk == nullptr) return kFailed;
  Signal other_host_is_there;
  Signal plugged;
  ChildProcess other_host([&] {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!enter_own_network()) return kFailed;
    other_host_is_there.give();
    plugged.take();
    need("ip addr add 10.77.0.2/24 dev tw1 && ip link set tw1 mtu " + std::to_string(mtu) + " up");
    desk->cable_plugged = true;
    return side_of_cable(*desk, 1, path_mtu);
  });
  other_host_is_there.take();
  need("ip link add tw0 type veth peer name tw1 && ip link set tw1 netns " + std::to_string(other_host.pid()));
  need("ip addr add 10.77.0.1/24 dev tw0 && ip link set tw0 mtu " + std::to_string(mtu) + " up");
  plugged.give();

  Checks check;
  check.that(side_of_cable(*desk, 0, path_mtu) == kPassed, "this side of the cable");
  check.that(other_host.wait(70s) == kPassed, "the other side of the cable");
  Ps longest = 0;
  std::uint64_t strays = 0;
  for (const auto& side : desk->cards) {
    for (const Card& card : side) {
      longest = std::max(longest, card.longest_silence.load());
      strays += card.strays;
    }
  }
  std::fprintf(stderr, "longest silence of a survivor %.1f ms, %lu strays\n",
               static_cast<double>(longest) / kMillisecond, static_cast<unsigned long>(strays));
  check.that(longest < 5 * kSecond, "the living go on while others die");
  return check.result();
}

class Cable : public ::testing::TestWithParam<int> {};

TEST_P(Cable, EightProcessesAgainstEightWithKills) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not let a forked child start threads";
  const auto path_mtu = active_mtu_for(static_cast<std::uint32_t>(GetParam()));
  const int result = in_own_network([&] { return eight_against_eight(GetParam(), path_mtu); }, 150s);
  if (result == kNoNamespace) GTEST_SKIP() << "network namespaces are forbidden here, or ip(8) is missing";
  EXPECT_EQ(result, kPassed) << "see the lines above";
}

INSTANTIATE_TEST_SUITE_P(Mtu, Cable, ::testing::Values(1500, 9000));

}  // namespace
}  // namespace tensorwire::softhca::testing
