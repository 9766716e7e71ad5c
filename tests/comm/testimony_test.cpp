// What follows from what the ranks report: pure functions, so every case without a process.
#include "comm/testimony.hpp"

#include <gtest/gtest.h>

#include "comm/activity_board.hpp"

namespace tensorwire::comm {
namespace {

using collective::Algorithm;
using collective::Collective;
using collective::DType;
using collective::Heard;
using collective::Op;
using collective::Signature;
using State = RankReport::State;

Signature all_reduce(std::uint32_t number, std::uint64_t count, DType dtype = DType::kFloat32) {
  return {0, Algorithm::kOneShot, dtype, Op::kSum, number, count, Collective::kAllReduce, 0};
}

Testimony says(State state, std::vector<Signature> recent, int subject = -1) {
  Testimony it;
  it.presence = Testimony::Presence::kPresent;
  it.report = RankReport{0, state, 4096, 3 * kSecond, subject, {}, std::move(recent)};
  it.age = 500 * kMillisecond;
  return it;
}

TEST(Testimony, TheOddOneOutIsNamedByAllAndByItself) {
  std::vector<Testimony> all;
  for (int rank = 0; rank < 4; ++rank) {
    all.push_back(says(State::kInOperation, {all_reduce(6, 10), all_reduce(7, rank == 2 ? 30 : 40)}));
  }
  for (const int self : {0, 1, 3}) {
    const auto found = find_disagreement(all, self);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->culprit, 2);
    EXPECT_EQ(found->line, "rank 2 disagrees on the element count: 30 there, 40 here");
  }
  const auto own = find_disagreement(all, 2);
  ASSERT_TRUE(own);
  EXPECT_EQ(own->culprit, 2);
  EXPECT_EQ(own->witness, 0);
  EXPECT_EQ(own->line, "this rank disagrees with rank 0 on the element count: 30 here, 40 there");
}

TEST(Testimony, IsSettledWhenThoseWhoHaveYetToComeCannotTipTheScales) {
  const auto settled = [](int right, int wrong, int missing) {
    std::vector<Testimony> all;
    for (int i = 0; i < right; ++i) all.push_back(says(State::kInOperation, {all_reduce(7, 40)}));
    for (int i = 0; i < wrong; ++i) all.push_back(says(State::kInOperation, {all_reduce(7, 30)}));
    for (int i = 0; i < missing; ++i) all.push_back(says(State::kBetween, {all_reduce(6, 40)}));
    return find_disagreement(all, 0)->settled;
  };
  EXPECT_TRUE(settled(1, 1, 0));
  EXPECT_FALSE(settled(1, 1, 1));
  EXPECT_FALSE(settled(2, 1, 1)) << "it may become two against two";
  EXPECT_TRUE(settled(3, 1, 1));
  EXPECT_FALSE(settled(4, 1, 3));
  EXPECT_TRUE(settled(5, 1, 3));
}

TEST(Testimony, OfTwoEachNamesTheOther) {
  const std::vector<Testimony> all{says(State::kInOperation, {all_reduce(7, 40)}),
                                   says(State::kInOperation, {all_reduce(7, 40, DType::kFloat16)})};
  EXPECT_EQ(find_disagreement(all, 0)->line, "rank 1 disagrees on the element type: fp16 there, fp32 here");
  EXPECT_EQ(find_disagreement(all, 1)->line, "rank 0 disagrees on the element type: fp32 there, fp16 here");
}

TEST(Testimony, WhoSeesItFromOutsideNamesBothSides) {
  std::vector<Testimony> all{says(State::kBetween, {all_reduce(6, 40)}), says(State::kInOperation, {all_reduce(7, 40)}),
                             says(State::kInOperation, {all_reduce(7, 40)}),
                             says(State::kInOperation, {all_reduce(7, 50)})};
  EXPECT_EQ(find_disagreement(all, 0)->line, "rank 3 disagrees on the element count: 50 there, 40 at rank 1");
  all[3] = Testimony{};
  EXPECT_FALSE(find_disagreement(all, 0));
}

TEST(Testimony, RanksThatAreNotEquallyFarDoNotDisagreeAndMessagesAreNotCompared) {
  Signature message = all_reduce(7, 99);
  message.collective = Collective::kSendRecv;
  const std::vector<Testimony> all{
      says(State::kInOperation, {all_reduce(6, 10), all_reduce(7, 40)}), says(State::kInOperation, {all_reduce(6, 10)}),
      says(State::kBetween, {all_reduce(7, 40), all_reduce(8, 50), message}), says(State::kBetween, {})};
  for (const int self : {0, 1, 2, 3}) EXPECT_FALSE(find_disagreement(all, self));
}

TEST(Testimony, TheFirstOperationThatDiffersCounts) {
  const std::vector<Testimony> all{says(State::kInOperation, {all_reduce(6, 10), all_reduce(7, 40)}),
                                   says(State::kInOperation, {all_reduce(6, 20), all_reduce(7, 50)})};
  EXPECT_EQ(find_disagreement(all, 0)->right.sequence, 6U);
}

TEST(Testimony, TheChainOfThoseWhoWaitLeadsToTheStraggler) {
  std::vector<Testimony> all;
  for (int rank = 0; rank < 4; ++rank) all.push_back(says(State::kInOperation, {all_reduce(7, 40)}, (rank + 3) % 4));
  all[1] = says(State::kBetween, {all_reduce(6, 40)});
  EXPECT_EQ(find_straggler(all, 3, 2), 1);
  EXPECT_EQ(find_straggler(all, 2, 1), 1);
  all[1] = Testimony{};
  EXPECT_EQ(find_straggler(all, 0, 3), 1);
  EXPECT_EQ(find_straggler(all, 0, -1), -1);
}

TEST(Testimony, ACircleIsNobodysFaultButTheNeighbours) {
  std::vector<Testimony> all;
  for (int rank = 0; rank < 4; ++rank) all.push_back(says(State::kInOperation, {all_reduce(7, 40)}, (rank + 3) % 4));
  EXPECT_EQ(find_straggler(all, 3, 2), 2);
  // Whom a rank waits for may be in a circle that does not go through it.
  all[1].report->subject = 2;
  EXPECT_EQ(find_straggler(all, 3, 2), 2);
}

TEST(Testimony, TheLastActIsToldWithItsAge) {
  std::vector<Testimony> all{says(State::kBetween, {all_reduce(6, 1024)}),
                             says(State::kInOperation, {all_reduce(7, 1024)}),
                             says(State::kFailed, {all_reduce(7, 1024)}), says(State::kBetween, {}), Testimony{}};
  const auto act = [&](int rank, Heard heard = {}) { return last_act(all, rank, 0, heard); };
  EXPECT_EQ(act(0), "it finished all-reduce 6 (4096 bytes) 3.5 s ago and has called nothing since");
  EXPECT_EQ(act(1), "it entered all-reduce 7 (4096 bytes) 3.5 s ago");
  EXPECT_EQ(act(2), "it failed 3.5 s ago; its last call was all-reduce 7 (4096 bytes)");
  EXPECT_EQ(act(3), "it has called nothing yet");
  EXPECT_EQ(act(4), "it does not answer, and no message came from it");
  EXPECT_EQ(act(4, {true, Collective::kBroadcast, 5}),
            "it does not answer; the last message from it was of broadcast 5");
  all[2].report->subject = 4;
  all[2].report->heard = {true, Collective::kAllReduce, 6};
  EXPECT_EQ(act(4), "it does not answer; the last message from it was of all-reduce 6, says rank 2");
  all[1].presence = Testimony::Presence::kSilent;
  EXPECT_EQ(act(1), "it entered all-reduce 7 (4096 bytes) 3.5 s ago, and does not answer now");
  all[3].presence = Testimony::Presence::kAbsent;
  EXPECT_EQ(act(3), "its process answers, but has left this communicator");
}

TEST(RankReport, SurvivesTheWireAndNothingElseIsTaken) {
  RankReport report{77, State::kFailed, 1ULL << 40, 7 * kSecond, 3, {true, Collective::kBroadcast, 9}, {}};
  for (std::uint32_t i = 0; i < 20; ++i) report.recent.push_back(all_reduce(i, i));
  const auto bytes = to_bytes(report);
  const auto back = report_from_bytes(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->state, report.state);
  EXPECT_EQ(back->life, 77U);
  EXPECT_EQ(back->bytes, report.bytes);
  EXPECT_EQ(back->ago, report.ago);
  EXPECT_EQ(back->subject, 3);
  EXPECT_EQ(back->heard.number, 9U);
  ASSERT_EQ(back->recent.size(), RankReport::kMostRecent);
  EXPECT_EQ(back->recent.front(), report.recent[4]);
  EXPECT_EQ(back->recent.back(), report.recent.back());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(report_from_bytes(std::span{bytes}.first(length)));
  }
  auto broken = bytes;
  broken[0] = std::byte{9};
  EXPECT_FALSE(report_from_bytes(broken));
}

TEST(ActivityBoard, KeepsTheLastOperations) {
  ActivityBoard board;
  EXPECT_TRUE(board.read(5 * kSecond).recent.empty());
  for (std::uint32_t i = 0; i < 20; ++i) {
    board.begin(all_reduce(i, 100 + i), 4 * (100 + i), i * kSecond);
    if (i != 19) board.end(i * kSecond);
  }
  board.set_subject(2, {true, Collective::kAllReduce, 18});
  const RankReport report = board.read(21 * kSecond);
  EXPECT_EQ(report.state, State::kInOperation);
  EXPECT_EQ(report.ago, 2 * kSecond);
  EXPECT_EQ(report.bytes, 476U);
  EXPECT_EQ(report.subject, 2);
  EXPECT_EQ(report.heard.number, 18U);
  ASSERT_EQ(report.recent.size(), RankReport::kMostRecent);
  for (std::uint32_t i = 0; i < 16; ++i) EXPECT_EQ(report.recent[i], all_reduce(4 + i, 104 + i));
}

}  // namespace
}  // namespace tensorwire::comm
