// The runner under a hostile network: any delivery order, any skew, any mix of operations, many seeds.
#include "collective/runner.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.hpp"
#include "random_network.hpp"
#include "reference.hpp"

namespace tensorwire::collective {
namespace {

/// What this slot size can carry of the call: rings of many ranks need some room.
bool fits(const Call& call, std::uint32_t ranks, std::uint64_t slot_payload) {
  try {
    static_cast<void>(split(call.algorithm, call.shape(ranks), slot_payload, call.options()));
    return true;
  } catch (const Error&) {
    return false;
  }
}

Call random_all_reduce(Random& random, std::uint32_t ranks, Call call) {
  constexpr Algorithm kAlgorithms[] = {Algorithm::kOneShot, Algorithm::kTwoShot, Algorithm::kTwoShotWindow,
                                       Algorithm::kRing, Algorithm::kHierarchical};
  call.algorithm = kAlgorithms[random.below(std::size(kAlgorithms))];
  if (call.algorithm == Algorithm::kHierarchical) {
    do {
      call.group_ranks = 1 + random.below(ranks);
    } while (ranks % call.group_ranks != 0);
  }
  const bool rounds_between = call.algorithm == Algorithm::kRing || call.algorithm == Algorithm::kHierarchical;
  if (rounds_between && call.op == Op::kAverage && call.dtype == DType::kInt32) call.op = Op::kSum;
  return call;
}

Call random_call(Random& random, std::uint32_t ranks, std::uint32_t most_count, std::uint64_t slot_payload) {
  Call call;
  call.source = random.chance(500'000) ? WriteSource::kInput : WriteSource::kSendSlot;
  call.count = random.chance(100'000) ? 0 : random.below(most_count);
  call.dtype = kDTypes[random.below(std::size(kDTypes))];
  call.op = kOps[random.below(std::size(kOps))];
  call.in_place = random.chance(500'000);
  call.collective = random.chance(500'000) ? Collective::kAllReduce : static_cast<Collective>(1 + random.below(7));
  if (call.collective == Collective::kAllReduce) {
    call = random_all_reduce(random, ranks, call);
    if (!fits(call, ranks, slot_payload)) call.algorithm = Algorithm::kOneShot;
    return call;
  }
  call.algorithm = Algorithm::kDirect;
  call.op = call.collective == Collective::kReduceScatter ? call.op : Op::kSum;
  if (call.collective != Collective::kBroadcast && call.collective != Collective::kSendRecv) call.count /= ranks;
  if (call.collective == Collective::kBarrier) call.count = 0;
  if (call.collective == Collective::kBroadcast) {
    call.root = static_cast<std::uint16_t>(random.below(ranks));
    if (random.chance(500'000)) call.algorithm = Algorithm::kTree;
  }
  if (call.collective == Collective::kSendRecv) {
    if (ranks == 1) return random_call(random, ranks, most_count, slot_payload);
    call.root = static_cast<std::uint16_t>(random.below(ranks));
    call.peer = static_cast<std::uint16_t>((call.root + 1 + random.below(ranks - 1)) % ranks);
    call.in_place = false;
    if (random.chance(500'000)) call.algorithm = Algorithm::kWindow;
  }
  if (call.collective == Collective::kAllToAll) {
    call.source = WriteSource::kInput;  // in place or not: decided by in_place
    if (random.chance(500'000)) {
      call.in_place = false;
      const auto most = static_cast<std::uint32_t>(call.count);
      call.count = 0;
      for (std::uint32_t pair = 0; pair < ranks * ranks; ++pair) {
        call.counts.push_back(random.chance(200'000) ? 0 : random.below(most + 1));
        call.count = std::max(call.count, call.counts.back());
      }
    }
  }
  return call;
}

std::string text(const Call& call) {
  return std::string{name_of(call.algorithm)} + " " + std::string{name_of(call.collective)} + " of " +
         std::to_string(call.count) + " " + std::string{name_of(call.dtype)} + " " + std::string{name_of(call.op)} +
         (call.in_place ? " in place" : "");
}

void expect_all_right(RandomNetwork& network, std::uint64_t seed, std::uint32_t ranks, const std::vector<Call>& calls) {
  network.run();
  for (std::uint32_t r = 0; r < ranks; ++r) {
    ASSERT_TRUE(network.finished(r)) << "stuck\n" << network.status();
    ASSERT_FALSE(network.runner(r).error()) << network.status();
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Reference reference{seed, ranks, i, calls[i], network.options().slot_payload};
    for (std::uint32_t r = 0; r < ranks; ++r) {
      ASSERT_EQ(network.results(r)[i], reference.output(r)) << "rank " << r << " call " << i << ": " << text(calls[i]);
    }
  }
}

void run_random(std::uint64_t seed, std::uint32_t ranks) {
  SCOPED_TRACE("seed " + std::to_string(seed) + ", ranks " + std::to_string(ranks));
  Random random{seed};
  RandomNetwork::Options options;
  options.ranks = ranks;
  options.depth = 2 + random.below(3);
  options.send_slots = 2 + random.below(5);
  options.slot_payload = 64 * (2 + random.below(8));
  options.concurrent_calls = 1 + random.below(3);
  options.in_order = random.chance(300'000);
  std::vector<Call> calls;
  const std::uint32_t count = 1 + random.below(12);
  for (std::uint32_t i = 0; i < count; ++i)
    calls.push_back(random_call(random, ranks, random.chance(200'000) ? 3000 : 300, options.slot_payload));
  RandomNetwork network{random.next(), options, std::vector<std::vector<Call>>(ranks, calls)};
  network.input_seed = seed;
  expect_all_right(network, seed, ranks, calls);
}

TEST(Runner, RandomOrdersSkewsAndOperations) {
  for (std::uint64_t seed = 0; seed < 1000 && !HasFatalFailure(); ++seed) {
    run_random(seed, 1 + static_cast<std::uint32_t>(seed % 8));
  }
}

TEST(Runner, ManyRanks) {
  for (std::uint64_t seed = 1000; seed < 1012 && !HasFatalFailure(); ++seed) {
    run_random(seed, 9 + static_cast<std::uint32_t>(seed % 8));
  }
}

TEST(Runner, UpTo64Ranks) {
  for (const std::uint32_t ranks : {17, 24, 33, 48, 64}) {
    if (HasFatalFailure()) return;
    SCOPED_TRACE(ranks);
    Random random{ranks};
    RandomNetwork::Options options;
    options.ranks = ranks;
    options.slot_payload = 64 * 2 * (ranks - 1);  // a ring of them needs that much
    options.concurrent_calls = 2;
    std::vector<Call> calls{{Algorithm::kRing, WriteSource::kSendSlot, 2000, DType::kFloat16, true, Op::kAverage}};
    for (int i = 0; i < 4; ++i) calls.push_back(random_call(random, ranks, 2000, options.slot_payload));
    RandomNetwork network{random.next(), options, std::vector<std::vector<Call>>(ranks, calls)};
    network.input_seed = ranks;
    expect_all_right(network, ranks, ranks, calls);
  }
}

TEST(Runner, SequencesWrapAround) {
  // More than 4096 sequence numbers for each pair.
  RandomNetwork::Options options;
  options.depth = 3;
  options.slot_payload = 128;
  const std::vector<Call> calls(30, Call{Algorithm::kTwoShot, WriteSource::kSendSlot, 32 * 150, DType::kFloat32, true});
  RandomNetwork network{1, options, {calls, calls}};
  network.input_seed = 5;
  expect_all_right(network, 5, 2, calls);
  EXPECT_GT(network.runner(0).counters().segments, kSequenceModulus);
}

TEST(Runner, LongMessagesExhaustTheCreditAndGoOn) {
  RandomNetwork::Options options;
  options.ranks = 3;
  options.slot_payload = 128;
  const std::vector<Call> calls{{Algorithm::kOneShot, WriteSource::kSendSlot, 32 * 200, DType::kFloat32, false}};
  RandomNetwork network{2, options, {calls, calls, calls}};
  network.input_seed = 6;
  expect_all_right(network, 6, 3, calls);
  EXPECT_GT(network.runner(0).counters().segments, 100U);
}

TEST(Runner, TheWindowOfAPairHoldsMessagesBack) {
  // More segments under way than a pair has slots, and a plan that sends nothing back: only credit writes open the
  // window again.
  RandomNetwork::Options options;
  options.ranks = 3;
  options.send_slots = 6;
  options.slot_payload = 128;
  options.in_order = true;
  const std::vector<Call> calls(3, Call{Algorithm::kDirect, WriteSource::kSendSlot, 32 * 50, DType::kFloat32, false,
                                        Op::kSum, Collective::kBroadcast});
  RandomNetwork network{4, options, {calls, calls, calls}};
  network.input_seed = 8;
  expect_all_right(network, 8, 3, calls);
  EXPECT_GT(network.runner(0).counters().credit_stalls, 50U);
  EXPECT_GE(network.runner(1).counters().credit_writes, 70U) << "at least one for every two of 150 sequences";
}

TEST(Runner, OneAfterAnotherNeedsNoCreditWrites) {
  RandomNetwork::Options options;
  options.slot_payload = 1024;
  const std::vector<Call> calls(50, Call{Algorithm::kTwoShot, WriteSource::kSendSlot, 256, DType::kFloat32, false});
  RandomNetwork network{3, options, {calls, calls}};
  network.input_seed = 7;
  expect_all_right(network, 7, 2, calls);
  for (std::uint32_t r = 0; r < 2; ++r) {
    EXPECT_EQ(network.runner(r).counters().credit_writes, 0U);
    EXPECT_EQ(network.runner(r).counters().writes, 100U) << "two messages for each operation";
  }
}

struct Disagreement {
  SignatureField field;
  Call other;
};

TEST(Runner, RanksThatDisagreeGetAnErrorAndNoBytes) {
  const Call good{Algorithm::kTwoShot, WriteSource::kSendSlot, 200, DType::kFloat16, false};
  const auto changed = [&](auto change) {
    Call call = good;
    change(call);
    return call;
  };
  const Disagreement cases[] = {
      {SignatureField::kCount, changed([](Call& c) { c.count = 100; })},
      {SignatureField::kCount, changed([](Call& c) { c.count = 0; })},
      {SignatureField::kCount, changed([](Call& c) { c.count = 5000; })},
      {SignatureField::kDType, changed([](Call& c) { c.dtype = DType::kBfloat16; })},
      {SignatureField::kDType, changed([](Call& c) { c.dtype = DType::kFloat32; })},
      {SignatureField::kOp, changed([](Call& c) { c.op = Op::kMax; })},
      {SignatureField::kCollective, changed([](Call& c) {
         c.collective = Collective::kAllGather;
         c.algorithm = Algorithm::kDirect;
       })},
      {SignatureField::kCollective, changed([](Call& c) {
         c.collective = Collective::kBarrier;
         c.algorithm = Algorithm::kDirect;
         c.count = 0;
       })},
      {SignatureField::kAlgorithm, changed([](Call& c) { c.algorithm = Algorithm::kTwoShotWindow; })},
      {SignatureField::kAlgorithm, changed([](Call& c) { c.algorithm = Algorithm::kOneShot; })},
  };
  for (std::uint64_t seed = 0; seed < 480 && !HasFatalFailure(); ++seed) {
    const Disagreement& wrong = cases[seed % std::size(cases)];
    const std::uint32_t ranks = 2 + static_cast<std::uint32_t>(seed / std::size(cases) % 4);
    const auto culprit = static_cast<std::uint32_t>(seed / std::size(cases) / 4 % ranks);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", culprit " + std::to_string(culprit));
    RandomNetwork::Options options;
    options.ranks = ranks;
    std::vector<std::vector<Call>> calls(ranks, {good, good, good});
    calls[culprit][1] = wrong.other;
    RandomNetwork network{seed, options, calls};
    network.input_seed = seed;
    network.run();
    for (std::uint32_t r = 0; r < ranks; ++r) {
      ASSERT_FALSE(network.finished(r));
      const RunnerError& error = network.runner(r).error();
      ASSERT_EQ(error.failure, Failure::kSignature) << network.status();
      if (r != culprit) {
        ASSERT_EQ(error.peer, culprit);
      }
      ASSERT_EQ(error.field, wrong.field) << to_string(error);
      ASSERT_TRUE(network.untouched(r)) << "bytes of a disagreeing rank reached user memory";
      ASSERT_EQ(network.results(r)[0], (Reference{seed, ranks, 0, good, options.slot_payload}.output(r)))
          << "the operation before was good";
    }
  }
}

/// Actions that only remember what was written.
struct Recorder final : HostActions {
  bool write(const WriteRequest& request) noexcept override {
    immediates.push_back(Immediate::unpack(request.immediate));
    return works;
  }
  std::vector<Immediate> immediates;
  bool works = true;
};

class RunnerErrors : public testing::Test {
 protected:
  RunnerErrors() : scratch_(config().scratch_bytes() + 64) {
    runner_ = std::make_unique<Runner>(config(), aligned(), 0, actions_);
    runner_->reserve(program_);
  }
  static RunnerConfig config() { return {0, 2, 2, 64 + 1024, 9}; }
  std::byte* aligned() { return scratch_.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch_.data()) % 64); }
  void begin() { runner_->begin({&program_, input_.data(), output_.data(), 0, 0, 16}); }

  std::vector<std::byte> scratch_, input_ = std::vector<std::byte>(64), output_ = std::vector<std::byte>(64);
  Recorder actions_;
  Program program_ = build_one_shot({2, 16, DType::kFloat32, Op::kSum}, 0);
  std::unique_ptr<Runner> runner_;
};

TEST_F(RunnerErrors, SequenceOutsideOfTheWindow) {
  runner_->on_arrival(1, Immediate{2, 0, 0}.pack());
  EXPECT_EQ(runner_->error().failure, Failure::kProtocol);
  EXPECT_EQ(to_string(runner_->error()), "rank 1 broke the protocol: its sequence is outside of the window");
}

TEST_F(RunnerErrors, MessageTwice) {
  runner_->on_arrival(1, Immediate{0, 0, 0}.pack());
  EXPECT_FALSE(runner_->error());
  runner_->on_arrival(1, Immediate{0, 0, 0}.pack());
  EXPECT_EQ(runner_->error().failure, Failure::kProtocol);
}

TEST_F(RunnerErrors, CreditForWhatWasNeverSent) {
  begin();
  runner_->on_arrival(1, Immediate{0, 2, kCreditMessage}.pack());
  EXPECT_EQ(runner_->error().failure, Failure::kProtocol);
}

TEST_F(RunnerErrors, OldCreditIsIgnored) {
  begin();
  runner_->on_arrival(1, Immediate{0, 1, kCreditMessage}.pack());
  runner_->on_arrival(1, Immediate{0, 0, kCreditMessage}.pack());
  EXPECT_FALSE(runner_->error());
}

TEST_F(RunnerErrors, InvitationsTwiceOrTooMany) {
  runner_->on_arrival(1, Immediate{0, 0, kInvitationMessage}.pack());
  runner_->on_arrival(1, Immediate{1, 0, kInvitationMessage}.pack());
  EXPECT_FALSE(runner_->error());
  runner_->on_arrival(1, Immediate{1, 0, kInvitationMessage}.pack());
  EXPECT_EQ(to_string(runner_->error()), "rank 1 broke the protocol: it sent an invitation twice");
  runner_ = std::make_unique<Runner>(config(), aligned(), 0, actions_);
  runner_->on_arrival(1, Immediate{2, 0, kInvitationMessage}.pack());
  EXPECT_EQ(to_string(runner_->error()), "rank 1 broke the protocol: its invitation is outside of the window");
}

/// What goes ahead holds no segment up: `depth` messages each way are open, and others begin and end beside them.
TEST_F(RunnerErrors, WhatIsOpenHoldsNothingUp) {
  const auto shape = [](std::uint16_t root) {
    return Shape{2, 16, DType::kFloat32, Op::kSum, Collective::kSendRecv, root, static_cast<std::uint16_t>(1 - root)};
  };
  const Program sends = build_send_recv_window(shape(0), 0);
  const Program receives = build_send_recv_window(shape(1), 0);
  runner_->reserve(sends);
  runner_->reserve(receives);
  for (int i = 0; i < 2; ++i) {
    for (const Program* program : {&sends, &receives}) {
      ASSERT_TRUE(runner_->can_open(*program));
      Segment segment{program, input_.data(), output_.data(), 0, 0, 16};
      runner_->open(segment);
      EXPECT_FALSE(runner_->can_go_on(segment));
    }
  }
  EXPECT_FALSE(runner_->can_open(sends)) << "the peer has no slot left";
  EXPECT_FALSE(runner_->can_open(receives)) << "nor a place for another invitation";
  EXPECT_TRUE(runner_->can_begin());
  EXPECT_TRUE(runner_->idle());
  EXPECT_EQ(actions_.immediates.size(), 4U);
}

TEST_F(RunnerErrors, UnknownToken) {
  begin();
  runner_->on_sent(77 << 16);
  EXPECT_EQ(runner_->error().failure, Failure::kProtocol);
}

TEST_F(RunnerErrors, TransportFailureIsStickyAndNothingFollows) {
  actions_.works = false;
  begin();
  EXPECT_EQ(runner_->error().failure, Failure::kTransport);
  const std::size_t writes = actions_.immediates.size();
  EXPECT_FALSE(runner_->can_begin());
  runner_->on_arrival(1, Immediate{0, 0, 0}.pack());
  runner_->flush_credit();
  EXPECT_EQ(actions_.immediates.size(), writes);
}

/// Messages that the runner reads in the sender's memory.
class RunnerInPlace : public RunnerErrors {
 protected:
  RunnerInPlace() : message_(kSlotHeaderBytes + 64) {
    RunnerConfig in_place = config();
    in_place.messages_in_place = 2;
    runner_ = std::make_unique<Runner>(in_place, aligned(), 0, actions_);
    runner_->reserve(program_);
    store(signature_of(program_.shape, program_.algorithm, in_place.communicator, 0, 16), message_.data());
    for (std::size_t i = 0; i < 16; ++i) {
      const float theirs = static_cast<float>(i), ours = 1;
      std::memcpy(message_.data() + kSlotHeaderBytes + i * 4, &theirs, 4);
      std::memcpy(input_.data() + i * 4, &ours, 4);
    }
  }
  void arrive(std::uint32_t sequence, std::uint64_t offset, std::uint64_t bytes) {
    runner_->on_arrival(1, Immediate{sequence, 0, 0}.pack(), {message_.data(), offset, bytes});
  }
  void expect_broken(const char* why) {
    EXPECT_EQ(to_string(runner_->error()), std::string{"rank 1 broke the protocol: "} + why);
    EXPECT_EQ(output_, std::vector<std::byte>(64)) << "user memory was written";
  }

  std::vector<std::byte> message_;
};

TEST_F(RunnerInPlace, TheSumIsOfWhatLiesThere) {
  begin();
  arrive(0, 0, message_.size());
  EXPECT_FALSE(runner_->error()) << to_string(runner_->error());
  EXPECT_EQ(runner_->completed(), 1U);
  for (std::size_t i = 0; i < 16; ++i) {
    float sum = 0;
    std::memcpy(&sum, output_.data() + i * 4, 4);
    EXPECT_EQ(sum, static_cast<float>(i + 1));
  }
}

TEST_F(RunnerInPlace, AMessageThatIsEarlyIsFoundThere) {
  arrive(0, 0, message_.size());
  begin();
  EXPECT_EQ(runner_->completed(), 1U);
}

TEST_F(RunnerInPlace, FewerBytesThanThePlanHas) {
  begin();
  arrive(0, 0, message_.size() - 4);
  expect_broken("its message has other bytes than the plan");
}

TEST_F(RunnerInPlace, WithoutSignature) {
  begin();
  arrive(0, kSlotHeaderBytes, 64);
  expect_broken("its message has no signature");
}

TEST_F(RunnerInPlace, ForAnotherSlot) {
  begin();
  arrive(0, config().slot_bytes, message_.size());
  expect_broken("its message is for another slot");
}

TEST_F(RunnerInPlace, OverTheEndOfItsSlot) {
  begin();
  arrive(0, 64, config().slot_bytes);
  expect_broken("its message is for another slot");
}

TEST_F(RunnerInPlace, MoreMessagesThanAnyPlanHas) {
  for (std::uint8_t message = 0; message < 3; ++message) {
    runner_->on_arrival(1, Immediate{0, 0, message}.pack(), {message_.data(), 0, 64});
  }
  expect_broken("it sent more messages than any plan has");
}

TEST_F(RunnerErrors, NamesWhomItWaitsFor) {
  begin();
  EXPECT_EQ(runner_->waiting_for().peer, 1U);
  EXPECT_STREQ(runner_->waiting_for().what, "to send its part");
}

TEST_F(RunnerErrors, NamesWhoKeepsItFromBeginning) {
  EXPECT_EQ(runner_->waiting_to_begin().peer, 2U) << "nobody";
  std::uint32_t sequence = 0;
  for (; runner_->can_begin(); ++sequence) {
    store({9, Algorithm::kOneShot, DType::kFloat32, Op::kSum, 0, 16, Collective::kAllReduce, 0},
          aligned() + config().receive_slot(1, sequence));
    begin();
    runner_->on_arrival(1, Immediate{sequence, 0, 0}.pack());
  }
  EXPECT_TRUE(runner_->idle());
  EXPECT_EQ(runner_->waiting_for().peer, 2U) << "all that began is over";
  EXPECT_EQ(runner_->waiting_to_begin().peer, 1U);
  runner_->on_arrival(1, Immediate{0, 1, kCreditMessage}.pack());
  EXPECT_TRUE(runner_->can_begin());
  EXPECT_EQ(runner_->waiting_to_begin().peer, 2U);
}

TEST_F(RunnerErrors, ProgramsThatDoNotFitAreRefused) {
  EXPECT_THROW(runner_->reserve(build_one_shot({2, 257, DType::kFloat32, Op::kSum}, 0)), Error);
  EXPECT_THROW(runner_->reserve(build_one_shot({3, 1, DType::kFloat32, Op::kSum}, 0)), Error);
  EXPECT_THROW((Runner{{0, 2, 1, 128, 0}, aligned(), 0, actions_}), Error) << "depth 1";
  EXPECT_THROW((Runner{{0, 2, 2, 128, 0, 1}, aligned(), 0, actions_}), Error) << "one send slot";
  EXPECT_THROW((Runner{{0, 2, 2, 100, 0}, aligned(), 0, actions_}), Error) << "misaligned slots";
}

}  // namespace
}  // namespace tensorwire::collective
