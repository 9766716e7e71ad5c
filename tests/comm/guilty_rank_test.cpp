// One rank of three or four is dead, stopped, slow, or calls something else than the others. Every other rank gets one
// line that names it and says what it last did, within the bound; nothing is written beside the buffers, which lie with
// canaries in one registered segment, nor into them once the operation has failed, even when the rank wakes up later
// and goes on.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/clock.hpp"
#include "c_api_ranks.hpp"
#include "canary_memory.hpp"
#include "tensors.hpp"

namespace tensorwire::comm {
namespace {

#ifdef TENSORWIRE_TSAN
constexpr int kSlowness = 5;  // healthy operations must keep the bound, too
#else
constexpr int kSlowness = 1;
#endif
constexpr int kBoundMs = 600 * kSlowness;
constexpr Ps kSlack = 1500 * kSlowness * kMillisecond;  ///< of a busy machine
constexpr int kWakesAfterMs = 1000 * kSlowness;         ///< later than the others have given up
constexpr std::size_t kSmall = 1'000, kLarge = 600'000;

enum class Trouble : std::uint8_t { kKilled, kStopped, kLate, kCount, kType, kOperator, kCollective, kOrder };

bool disagrees(Trouble trouble) { return trouble >= Trouble::kCount; }

struct GuiltyCase {
  Trouble trouble = Trouble::kKilled;
  int ranks = 3;
  int guilty = 1;
  std::size_t count = kSmall;
  twPath_t path = twPathAuto;
  bool chain = false;  ///< each rank but 0 receives from the one before it, and only rank 1 is impatient
};

std::string name_of(const GuiltyCase& c) {
  constexpr std::array kNames{"Killed", "Stopped", "Late", "Count", "Type", "Operator", "Collective", "Order"};
  return fmt::format("{}{}Of{}{}{}{}", kNames[static_cast<std::size_t>(c.trouble)], c.guilty, c.ranks,
                     c.count == kSmall ? "Small" : "Large", c.path == twPathAuto ? "" : "Packets",
                     c.chain ? "Chain" : "");
}

/// Wakes this process some time after it stopped itself. To be made before there is anything that a child should not
/// inherit.
class Waker {
 public:
  Waker() {
    if (pipe(pipe_.data()) != 0) throw system_error("make a pipe", errno);
    const pid_t sleeper = getpid();
    child_ = fork();
    if (child_ != 0) return;
    close(pipe_[1]);
    int after_ms = 0;
    if (read(pipe_[0], &after_ms, sizeof after_ms) == sizeof after_ms) {
      usleep(static_cast<useconds_t>(after_ms) * 1000);
      kill(sleeper, SIGCONT);
    }
    _exit(0);
  }
  ~Waker() {
    close(pipe_[0]);
    close(pipe_[1]);
    waitpid(child_, nullptr, 0);
  }
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  void stop_for(int milliseconds) const {
    if (write(pipe_[1], &milliseconds, sizeof milliseconds) != sizeof milliseconds) throw system_error("wake", errno);
    raise(SIGSTOP);
  }

 private:
  std::array<int, 2> pipe_{};
  pid_t child_ = 0;
};

twResult_t all_reduce(twComm_t comm, const CanaryMemory& memory, std::size_t count, twDataType_t dtype = twFloat32,
                      twRedOp_t op = twSum) {
  return twAllReduce(memory.in().data(), memory.out().data(), count, dtype, op, comm, nullptr);
}

/// What the ranks without guilt do when one is guilty.
twResult_t behave(const GuiltyCase& c, int rank, twComm_t comm, const CanaryMemory& memory) {
  if (!c.chain) return all_reduce(comm, memory, c.count);
  return twRecv(memory.out().data(), c.count, twFloat32, rank - 1, comm, nullptr);
}

/// The guilty rank's part.
twResult_t misbehave(const GuiltyCase& c, twComm_t comm, const CanaryMemory& memory, const Waker& waker) {
  switch (c.trouble) {
    case Trouble::kKilled:
      raise(SIGKILL);
      break;
    case Trouble::kStopped:
      waker.stop_for(kWakesAfterMs);
      break;
    case Trouble::kLate:
      std::this_thread::sleep_for(std::chrono::milliseconds{kWakesAfterMs});
      break;
    case Trouble::kCount:
      return all_reduce(comm, memory, c.count - 8);
    case Trouble::kType:
      return all_reduce(comm, memory, c.count, twInt32);
    case Trouble::kOperator:
      return all_reduce(comm, memory, c.count, twFloat32, twMax);
    case Trouble::kCollective:
      return twBroadcast(memory.in().data(), memory.out().data(), c.count, twFloat32, 0, comm, nullptr);
    case Trouble::kOrder: {  // the others do this one next
      const std::size_t each = c.count / static_cast<std::size_t>(c.ranks);
      return twAllGather(memory.in().data(), memory.out().data(), each, twFloat32, comm, nullptr);
    }
  }
  return all_reduce(comm, memory, c.count);
}

void check_memory(const CanaryMemory& memory, bool buffers_too, const char* when) {
  if (const std::string dead = memory.dead_canary(); !dead.empty()) throw Error{when, dead};
  if (!buffers_too) return;
  if (!CanaryMemory::untouched(memory.in())) throw Error{when, "the input was written"};
  if (!CanaryMemory::untouched(memory.out())) throw Error{when, "the output was written"};
}

/// Who comes late may find that everything it needs had arrived before the others gave up: then its result is right.
/// It learns of their fate in its next operation.
void expect_late_success(const GuiltyCase& c, twComm_t comm, const CanaryMemory& memory) {
  if (c.trouble != Trouble::kStopped && c.trouble != Trouble::kLate) throw Error{"the operation", "succeeded"};
  const std::size_t bytes = c.count * sizeof(float);
  std::vector<std::byte> sum(bytes);
  const std::vector<const std::byte*> inputs(static_cast<std::size_t>(c.ranks), memory.in().data());
  collective::reduce({DType::kFloat32}, inputs, sum.data(), nullptr, c.count);
  if (!std::ranges::equal(sum, memory.out().first(bytes))) throw Error{"the late operation", "wrong sum"};
  if (all_reduce(comm, memory, c.count) == twSuccess) throw Error{"the next operation", "succeeded"};
}

/// @return the line of the error; of the guilty rank nothing.
std::string be_rank(bootstrap::Group& group, const GuiltyCase& c) {
  const Waker waker;
  twConfig_t config = soft_config();
  config.path = c.path;
  config.operationTimeoutMs = c.chain && group.rank() > 1 ? 100 * kBoundMs : kBoundMs;
  config.warningMs = 0;
  const twComm_t comm = init_rank(group, config);
  CanaryMemory memory{kLarge * sizeof(float)};
  twWindow_t window = nullptr;
  expect_success(twCommWindowRegister(comm, memory.segment(), memory.segment_bytes(), &window, TW_WINDOW_DEFAULT),
                 "register", comm);
  for (std::uint64_t i = 0; i < 3; ++i) {
    const auto input = input_of(i, group.rank(), c.count, DType::kFloat32);
    std::ranges::copy(input, memory.in().begin());
    expect_success(all_reduce(comm, memory, c.count), "all-reduce", comm);
    const auto sum = sum_of(i, c.ranks, c.count, DType::kFloat32);
    if (!std::ranges::equal(sum, memory.out().first(sum.size()))) throw Error{"all-reduce", "wrong sum"};
  }

  memory.clear();
  const Ps start = monotonic_now();
  const bool guilty = group.rank() == c.guilty;
  const twResult_t result = guilty ? misbehave(c, comm, memory, waker) : behave(c, group.rank(), comm, memory);
  const Ps took = monotonic_now() - start;
  const std::string line = twGetLastError(comm);
  if (guilty && result == twSuccess) {
    expect_late_success(c, comm, memory);
  } else if (result == twSuccess) {
    throw Error{"the operation", "succeeded"};
  }
  if (!guilty && disagrees(c.trouble)) expect(result, twDisagreement, "the operation", comm);
  if (!guilty && took > kBoundMs * kMillisecond + kSlack)
    throw Error{"it took", fmt::format("{} ms", took / kMillisecond)};
  check_memory(memory, disagrees(c.trouble), "after the error");

  // The caller's memory again: who wakes up now and goes on must not reach it.
  memory.clear();
  const bool wakes = c.trouble == Trouble::kStopped || c.trouble == Trouble::kLate;
  std::this_thread::sleep_for(std::chrono::milliseconds{wakes && !guilty ? kWakesAfterMs - kBoundMs + 300 : 50});
  check_memory(memory, true, "later");
  twCommDestroy(comm);
  check_memory(memory, true, "at the end");
  return guilty ? "" : line;
}

class GuiltyRank : public ::testing::TestWithParam<GuiltyCase> {};

TEST_P(GuiltyRank, IsNamedByAllOthersAndHarmsNobody) {
  const GuiltyCase c = GetParam();
  const auto results = run_ranks(
      c.ranks, [&](bootstrap::Group& group) { return be_rank(group, c); }, 20 * kSlowness * kSecond);
  for (int rank = 0; rank < c.ranks; ++rank) {
    const RankResult& result = results[static_cast<std::size_t>(rank)];
    if (rank == c.guilty && c.trouble == Trouble::kKilled) continue;
    EXPECT_EQ(result.exit_code, 0) << "rank " << rank << ": " << result.text;
    if (rank == c.guilty) continue;
    EXPECT_NE(result.text.find(fmt::format("rank {} ", c.guilty)), std::string::npos)
        << "rank " << rank << ": " << result.text;
    const bool last_act = result.text.find(" ago") != std::string::npos ||
                          result.text.find("the last message from it was of all-reduce 2") != std::string::npos ||
                          result.text.find("the last message from it was of all-reduce 3") != std::string::npos;
    EXPECT_TRUE(last_act) << "rank " << rank << ": " << result.text;
    EXPECT_EQ(result.text.find('\n'), std::string::npos) << result.text;
  }
}

std::vector<GuiltyCase> cases() {
  std::vector<GuiltyCase> all;
  for (const Trouble trouble : {Trouble::kKilled, Trouble::kStopped, Trouble::kLate}) {
    all.push_back({.trouble = trouble, .ranks = 3, .guilty = 1});
    all.push_back({.trouble = trouble, .ranks = 4, .guilty = 0, .count = kLarge, .path = twPathPackets});
  }
  all.push_back({.trouble = Trouble::kStopped, .ranks = 4, .guilty = 0, .chain = true});
  for (const Trouble trouble :
       {Trouble::kCount, Trouble::kType, Trouble::kOperator, Trouble::kCollective, Trouble::kOrder}) {
    all.push_back({.trouble = trouble, .ranks = 3, .guilty = 2, .path = twPathPackets});
    all.push_back({.trouble = trouble, .ranks = 4, .guilty = 1, .count = kLarge});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Matrix, GuiltyRank, ::testing::ValuesIn(cases()),
                         [](const auto& tested) { return name_of(tested.param); });

}  // namespace
}  // namespace tensorwire::comm
