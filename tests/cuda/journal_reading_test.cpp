// What is read out of journals whose clocks have nothing to do with each other.
#include "cuda/journal_reading.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tensorwire::cuda {
namespace {

constexpr std::uint64_t kMillisecondNs = 1'000'000;
constexpr Operation kSumOfHalves{OperationKind::kAllReduce, 3, 8192, 1, 0};
constexpr Operation kGather{OperationKind::kAllGather, 1, 40000, 0, 0};

/// A journal as it grows, by a clock of its own.
class Writer {
 public:
  explicit Writer(std::uint64_t clock) : clock_(clock) {}

  /// @param to 0: it is not over
  void write(const Operation& operation, std::uint64_t from, std::uint64_t to, bool is_collective = true) {
    JournalEntry entry;
    entry.number = entries_.size() + 1;
    entry.what = packed_what(operation, is_collective ? ++collectives_ : 0);
    entry.bytes = operation.bytes;
    entry.begun_ns = clock_ + from;
    entry.ended_ns = to == 0 ? 0 : clock_ + to;
    entries_.push_back(entry);
  }
  [[nodiscard]] const std::vector<JournalEntry>& entries() const { return entries_; }

 private:
  std::uint64_t clock_;
  std::uint64_t collectives_ = 0;
  std::vector<JournalEntry> entries_;
};

TEST(JournalReading, ClocksAreComparedByTheLastCollectiveThatBothEnded) {
  Writer mine(1'000'000'000), theirs(73'000'000'000);
  EXPECT_FALSE(clock_ahead_ns(mine.entries(), theirs.entries()));
  mine.write(kSumOfHalves, 0, 5000);
  theirs.write(kSumOfHalves, 2000, 5000);
  mine.write({OperationKind::kMessages, 0, 64, 0, 0}, 6000, 7000, false);  // a peer may make more of these
  mine.write({OperationKind::kBroadcast, 3, 64, 0, 0}, 8000, 8100);        // its root does not wait
  theirs.write({OperationKind::kBroadcast, 3, 64, 0, 0}, 8000, 900'000);
  mine.write(kSumOfHalves, 10'000, 0);
  theirs.write(kSumOfHalves, 10'000, 20'000);
  EXPECT_EQ(clock_ahead_ns(mine.entries(), theirs.entries()), 72'000'000'000);
  EXPECT_EQ(clock_ahead_ns(theirs.entries(), mine.entries()), -72'000'000'000);
}

/// Two communicators launched in different orders: rank 1 is in the other one for 350 ms, until rank 0 gives up; then
/// it makes up at once for what it had not come to.
TEST(JournalReading, WhatBeganBecauseOneGaveUpIsNotWhatItWasIn) {
  constexpr std::uint64_t kFailed = 400 * kMillisecondNs;
  for (const std::uint64_t clock : {std::uint64_t{0}, std::uint64_t{1} << 40}) {
    for (const bool late_one_is_over : {false, true}) {
      Writer mine(1 << 20), theirs(clock + (1 << 20)), elsewhere(clock + (1 << 20));
      for (std::uint64_t i = 0; i < 20; ++i) {
        mine.write(kSumOfHalves, i * 10'000, i * 10'000 + 3000);
        theirs.write(kSumOfHalves, i * 10'000, i * 10'000 + 3000);
        elsewhere.write(kGather, i * 10'000 + 4000, i * 10'000 + 9000);
      }
      mine.write(kSumOfHalves, kMillisecondNs, 0);
      elsewhere.write(kGather, 50 * kMillisecondNs, kFailed + 8000);
      theirs.write(kSumOfHalves, kFailed + 10'000, late_one_is_over ? kFailed + 13'000 : 0);

      const auto ahead = clock_ahead_ns(mine.entries(), theirs.entries());
      ASSERT_EQ(ahead, static_cast<std::int64_t>(clock));
      const std::uint64_t here = (1 << 20) + kFailed;
      const Moment of_mine{here, 5 * kMillisecondNs};
      const Moment of_theirs{here + clock, 5 * kMillisecondNs};
      EXPECT_EQ(doings_at(mine.entries(), of_mine), "was in operation 21 (all-reduce, 8192 bytes of bf16)");
      EXPECT_EQ(doings_at(theirs.entries(), of_theirs),
                "was through with operation 20 (all-reduce, 8192 bytes of bf16)");
      const JournalEntry* const other = long_one_at(elsewhere.entries(), of_theirs);
      ASSERT_NE(other, nullptr);
      EXPECT_EQ(name_of(*other), "operation 21 (all-gather, 40000 bytes of fp32)");
    }
  }
}

TEST(JournalReading, OfARankThatBeganNothing) {
  EXPECT_EQ(doings_at({}, {1000, 10}), "had begun nothing here");
  Writer later(0);
  later.write(kSumOfHalves, 2000, 3000);
  EXPECT_EQ(doings_at(later.entries(), {1000, 10}), "had begun nothing here");
}

TEST(JournalReading, SaysWhatWasAskedFor) {
  Writer writer(1);
  writer.write(kSumOfHalves, 1, 2);
  writer.write(kGather, 3, 4);
  const JournalEntry* const second = collective_in(writer.entries(), 2);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(request_of(*second), "all-gather, 40000 bytes of fp32");
  EXPECT_EQ(request_of(*collective_in(writer.entries(), 1)), "all-reduce (sum), 8192 bytes of bf16");
  EXPECT_EQ(collective_in(writer.entries(), 3), nullptr);
  EXPECT_EQ(collective_in(writer.entries(), 0), nullptr);
}

TEST(Signature, TellsApartWhatMustBeAlike) {
  const std::uint32_t one = signature_of(kSumOfHalves);
  EXPECT_NE(one, 0U);
  EXPECT_EQ(one, signature_of(kSumOfHalves));
  for (const Operation& other :
       {Operation{OperationKind::kReduceScatter, 3, 8192, 1, 0}, Operation{OperationKind::kAllReduce, 2, 8192, 1, 0},
        Operation{OperationKind::kAllReduce, 3, 8192, 2, 0}, Operation{OperationKind::kAllReduce, 3, 8190, 1, 0}}) {
    EXPECT_NE(signature_of(other), one);
  }
  EXPECT_NE(signature_of(kSumOfHalves, 1), one);
}

}  // namespace
}  // namespace tensorwire::cuda
