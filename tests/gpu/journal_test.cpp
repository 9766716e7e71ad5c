// What the kernels write down: each operation, eager or replayed, with its times and whom it waited for; and what an
// error makes of it when two communicators were launched in different orders.
#include <algorithm>
#include <chrono>
#include <thread>

#include "gpu/delay.hpp"
#include "gpu/ranks.hpp"

namespace tensorwire::test {
namespace {

using collective::DType;
using collective::Op;

constexpr std::uint64_t kLateNs = 3'000'000;

TEST(Journal, TellsOfEachOperationAndOfWhomItWaitedFor) {
  SKIP_WITHOUT_GPU();
  as_ranks(2, {}, [](Rank& rank) {
    const DeviceBytes memory(8U << 20);
    rank.crossing.wait();
    // Small and large, by each protocol, and messages; rank 1 comes late to the second of each.
    for (const std::size_t count : {std::size_t{4096}, std::size_t{3'000'000}}) {
      for (int i = 0; i < 2; ++i) {
        if (i == 1 && rank.rank == 1) delay(kLateNs, rank.stream);
        ASSERT_EQ(
            rank.communicator.all_reduce(memory.data(), memory.data(), count, DType::kBfloat16, Op::kSum, rank.stream),
            cuda::Status::kOk);
      }
      if (rank.rank == 1) delay(kLateNs, rank.stream);
      ASSERT_EQ(
          rank.communicator.all_reduce(memory.data(), memory.data(), count / 2, DType::kInt32, Op::kMax, rank.stream),
          cuda::Status::kOk);
      if (rank.rank == 1) delay(kLateNs, rank.stream);
      ASSERT_EQ(rank.communicator.all_gather(memory.data() + (4U << 20), memory.data(), count / 4, DType::kFloat16,
                                             rank.stream),
                cuda::Status::kOk);
    }
    rank.synchronize();
    const auto journal = rank.communicator.journal();
    EXPECT_EQ(journal.operations, 8U);
    ASSERT_EQ(journal.entries.size(), 8U);
    constexpr std::uint64_t kBytes = 7 * (4096 + 3'000'000);  // three tensors of two bytes an element, and one
    EXPECT_EQ(journal.bytes, kBytes);
    for (std::size_t i = 0; i < journal.entries.size(); ++i) {
      const cuda::JournalEntry& entry = journal.entries[i];
      EXPECT_EQ(entry.number, i + 1);
      EXPECT_EQ(cuda::kind_of(entry), i % 4 == 3 ? cuda::OperationKind::kAllGather : cuda::OperationKind::kAllReduce);
      EXPECT_EQ(cuda::collective_of(entry), i + 1);
      EXPECT_GT(entry.ended_ns, entry.begun_ns) << i;
      EXPECT_GE(entry.begun_ns, journal.entries[i - std::min<std::size_t>(i, 1)].begun_ns);
      EXPECT_EQ(entry.waited_ns[static_cast<std::size_t>(rank.rank)], 0U);
      const std::uint64_t waited = entry.waited_ns[1 - static_cast<std::size_t>(rank.rank)];
      if (rank.rank == 0 && i % 4 != 0) {
        EXPECT_GT(waited, kLateNs / 2) << i;  // this rank may be late itself
        EXPECT_LE(waited, entry.ended_ns - entry.begun_ns + 1000) << i;
      } else if (rank.rank == 1) {
        EXPECT_LT(waited, kLateNs / 2) << i;
      }
    }
    rank.crossing.wait();
  });
}

TEST(Journal, KeepsTheLastOfMany) {
  SKIP_WITHOUT_GPU();
  as_ranks(2, {}, [](Rank& rank) {
    const DeviceBytes memory(1024);
    rank.crossing.wait();
    for (std::uint64_t i = 0; i < cuda::kJournalEntries + 100; ++i) {
      ASSERT_EQ(rank.communicator.all_reduce(memory.data(), memory.data(), 8, DType::kFloat32, Op::kSum, rank.stream),
                cuda::Status::kOk);
    }
    rank.synchronize();
    const auto journal = rank.communicator.journal();
    EXPECT_EQ(journal.operations, cuda::kJournalEntries + 100);
    EXPECT_EQ(journal.bytes, 32 * journal.operations);
    ASSERT_EQ(journal.entries.size(), cuda::kJournalEntries);
    EXPECT_EQ(journal.entries.front().number, 101U);
    EXPECT_EQ(journal.entries.back().number, journal.operations);
  });
}

TEST(Journal, CanBeOff) {
  SKIP_WITHOUT_GPU();
  cuda::CommunicatorOptions options;
  options.journal = false;
  as_ranks(2, options, [](Rank& rank) {
    const DeviceBytes memory(1024);
    rank.crossing.wait();
    ASSERT_EQ(rank.communicator.all_reduce(memory.data(), memory.data(), 8, DType::kFloat32, Op::kSum, rank.stream),
              cuda::Status::kOk);
    rank.synchronize();
    EXPECT_EQ(rank.communicator.journal().operations, 0U);
  });
}

/// Rank 0 launches on one communicator first, rank 1 on the other one: each waits for the other until the bound, and
/// the error names what both were in.
TEST(TwoCommunicators, LaunchedInDifferentOrdersEndInAnErrorThatNamesBothOperations) {
  SKIP_WITHOUT_GPU();
  cuda::CommunicatorOptions options;
  options.operation_bound = 400 * kMillisecond;
  as_ranks(2, options, [&](Rank& rank) {
    cuda::CommunicatorOptions again = options;
    again.rank = rank.rank;
    again.ranks = rank.ranks;
    again.device = rank.rank % gpu_count();
    again.exchange = [&](std::span<const std::byte> bytes) { return rank.crossing.exchange(rank.rank, bytes); };
    cuda::Communicator second(again);
    const DeviceBytes memory(1U << 20);
    rank.crossing.wait();
    const auto on_first = [&] {
      return rank.communicator.all_reduce(memory.data(), memory.data(), 4096, DType::kBfloat16, Op::kSum, rank.stream);
    };
    const auto on_second = [&] {
      return second.all_gather(memory.data() + 65536, memory.data(), 5000, DType::kFloat32, rank.stream);
    };
    // In the same order they do no harm to each other.
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(on_first(), cuda::Status::kOk);
      ASSERT_EQ(on_second(), cuda::Status::kOk);
    }
    rank.synchronize();
    ASSERT_EQ(rank.communicator.failure_text() + second.failure_text(), "");
    rank.crossing.wait();
    const auto began = std::chrono::steady_clock::now();
    if (rank.rank == 0) {
      ASSERT_EQ(on_first(), cuda::Status::kOk);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // so that rank 0 is the first to lose patience
      ASSERT_EQ(on_second(), cuda::Status::kOk);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ASSERT_EQ(on_second(), cuda::Status::kOk);
      ASSERT_EQ(on_first(), cuda::Status::kOk);
    }
    if (rank.rank == 0) {
      while (!rank.communicator.failure() && std::chrono::steady_clock::now() < began + std::chrono::seconds(5)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      const std::string text = rank.communicator.failure_text();
      EXPECT_NE(text.find("waited 400 ms for rank 1"), std::string::npos) << text;
      EXPECT_NE(text.find("Rank 0 was in operation 21 (all-reduce, 8192 bytes of bf16)"), std::string::npos) << text;
      EXPECT_NE(text.find("rank 1 was through with operation 20 (all-reduce, 8192 bytes of bf16), and in operation 21 "
                          "(all-gather, 40000 bytes "
                          "of fp32) of another communicator"),
                std::string::npos)
          << text;
    }
    rank.synchronize();
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(1500));
    rank.crossing.wait();
  });
}

}  // namespace
}  // namespace tensorwire::test
