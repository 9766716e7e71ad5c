#include "softhca/remote_pull.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/random.hpp"
#include "child_process.hpp"
#include "softhca/host_memory.hpp"
#include "transport/withdrawals.hpp"

namespace tensorwire::softhca {
namespace {

constexpr std::size_t kMebibyte = 1 << 20;

std::byte pattern(std::size_t i) { return static_cast<std::byte>(mix64(i)); }

/// Memory that a child inherits at the same address, and that either side can unmap.
class Mapping {
 public:
  explicit Mapping(std::size_t bytes) : bytes_(bytes) {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    data_ = static_cast<std::byte*>(at);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(data_, bytes_); }
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uint64_t>(data_ + offset);
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

/// A child that holds the pattern in `source_`, where the parent holds zeros, and waits.
class Pull : public testing::Test {
 protected:
  static constexpr std::uint64_t kProbe = 0x0123'4567'89ab'cdefULL;
  static constexpr Standing kStands{.qpn = 5 + 3 * transport::Withdrawals::kCounts, .withdrawals = 0};
  static constexpr std::uint32_t kWithdrawn = 6;  ///< a QPN that took something back in the child

  void SetUp() override {
    probe_ = 0;
    child_.emplace([this] {
      probe_ = kProbe;
      withdrawals_.count(kWithdrawn);
      for (std::size_t i = 0; i < kMebibyte; ++i) source_.data()[i] = pattern(i);
      ::munmap(source_.data() + kMebibyte, kMebibyte);  // the second half is not there in the child
      ready_.give();
      finish_.take();
      return 0;
    });
    ready_.take();
    region_.ops = &memory_;
    region_.address = target_.address();
    region_.length = 2 * kMebibyte;
  }
  void TearDown() override {
    if (child_) finish_.give();
  }

  [[nodiscard]] PullSource peer() const {
    return {.pid = static_cast<std::uint32_t>(child_->pid()),
            .same_process = false,
            .probe = {reinterpret_cast<std::uint64_t>(&probe_), kProbe},
            .withdrawals = reinterpret_cast<std::uint64_t>(&withdrawals_)};
  }
  [[nodiscard]] transport::Piece target(std::size_t offset, std::size_t bytes) const {
    return {&region_, target_.address(offset), static_cast<std::uint32_t>(bytes)};
  }
  [[nodiscard]] RemotePiece source(std::size_t offset, std::size_t bytes) const {
    return {source_.address(offset), static_cast<std::uint32_t>(bytes)};
  }
  PullStatus pull_one(std::size_t from, std::size_t to, std::size_t bytes) {
    const RemotePiece remote = source(from, bytes);
    const transport::Piece local = target(to, bytes);
    return pull(peer(), kStands, {&remote, 1}, {&local, 1}, 0, bytes);
  }
  void clear() { std::memset(target_.data(), 0xee, 2 * kMebibyte); }
  void expect_pattern(std::size_t from, std::size_t to, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) {
      ASSERT_EQ(target_.data()[to + i], pattern(from + i)) << "byte " << i << " of " << bytes;
    }
    ASSERT_EQ(target_.data()[to + bytes], std::byte{0xee}) << "wrote beyond " << bytes;
  }

  HostMemory memory_;
  transport::MemoryRegion region_;
  Mapping source_{2 * kMebibyte};
  Mapping target_{2 * kMebibyte};
  std::uint64_t probe_ = 0;
  transport::Withdrawals withdrawals_;
  Signal ready_;
  Signal finish_;
  std::optional<ChildProcess> child_;
};

TEST_F(Pull, EverySmallSizeAndAlignment) {
  Random random(1);
  for (std::size_t bytes = 0; bytes <= 9000; ++bytes) {
    const std::size_t from = random.below(4096);
    const std::size_t to = 1 + random.below(4096);
    std::memset(target_.data() + to - 1, 0xee, bytes + 2);
    ASSERT_EQ(pull_one(from, to, bytes), PullStatus::kOk);
    ASSERT_EQ(target_.data()[to - 1], std::byte{0xee});
    expect_pattern(from, to, bytes);
    if (HasFatalFailure()) return;
  }
}

TEST_F(Pull, SizesUpToAMebibyte) {
  Random random(2);
  for (std::size_t bytes = 9001; bytes <= kMebibyte; bytes += 1 + random.below(40'000)) {
    clear();
    ASSERT_EQ(pull_one(0, 3, bytes), PullStatus::kOk);
    expect_pattern(0, 3, bytes);
    if (HasFatalFailure()) return;
  }
  clear();
  ASSERT_EQ(pull_one(0, 0, kMebibyte), PullStatus::kOk);
  expect_pattern(0, 0, kMebibyte);
}

/// Pieces of both sides cut differently, pulled in parts as a long message is.
TEST_F(Pull, ScatteredPiecesInParts) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    const std::uint32_t total = 1 + random.below(300'000);
    std::vector<RemotePiece> from;
    for (std::uint32_t at = 0; at < total;) {
      const std::uint32_t n =
          from.size() == transport::kMaxSge - 1 ? total - at : std::min(total - at, random.below(60'000));
      from.push_back(source(at, n));
      at += n;
    }
    std::vector<transport::Piece> to;
    std::size_t gap = 0;  // between pieces lie bytes that must stay as they are
    for (std::uint32_t at = 0; at < total;) {
      const std::uint32_t n =
          to.size() == transport::kMaxSge - 1 ? total - at : std::min(total - at, random.below(60'000));
      to.push_back(target(at + gap, n));
      at += n;
      gap += 16;
    }
    clear();
    for (std::uint64_t done = 0; done < total;) {
      const std::uint64_t n = std::min<std::uint64_t>(total - done, 1 + random.below(100'000));
      ASSERT_EQ(pull(peer(), kStands, from, to, done, n), PullStatus::kOk);
      done += n;
    }
    std::size_t at = 0;
    for (const transport::Piece& piece : to) {
      const auto offset = static_cast<std::size_t>(piece.address - target_.address());
      expect_pattern(at, offset, piece.length);
      if (HasFatalFailure()) return;
      at += piece.length;
    }
  }
}

TEST_F(Pull, SenderMemoryThatVanished) {
  EXPECT_EQ(pull_one(kMebibyte - 100, 0, 200), PullStatus::kMemoryGone);
  EXPECT_EQ(pull_one(kMebibyte, 0, 200), PullStatus::kMemoryGone);
  EXPECT_EQ(pull_one(kMebibyte - 200, 0, 200), PullStatus::kOk);
}

TEST_F(Pull, OwnMemoryThatVanished) {
  ASSERT_EQ(::munmap(target_.data() + 8192, 4096), 0);
  EXPECT_EQ(pull_one(0, 8192 - 100, 200), PullStatus::kMemoryGone);
  EXPECT_EQ(pull_one(0, 8192 - 200, 200), PullStatus::kOk);
}

TEST_F(Pull, AProcessThatIsNotTheOneThatMadeTheOffer) {
  PullSource other = peer();
  other.probe.value ^= 1;
  const RemotePiece remote = source(0, 100);
  const transport::Piece local = target(0, 100);
  EXPECT_EQ(pull(other, kStands, {&remote, 1}, {&local, 1}, 0, 100), PullStatus::kPeerGone);
  other = peer();
  other.probe.address = source_.address(kMebibyte);  // not mapped there
  EXPECT_EQ(pull(other, kStands, {&remote, 1}, {&local, 1}, 0, 100), PullStatus::kPeerGone);
}

TEST_F(Pull, ADeadProcess) {
  const PullSource dead = peer();
  child_->end();
  child_.reset();
  const RemotePiece remote = source(0, 100);
  const transport::Piece local = target(0, 100);
  EXPECT_EQ(pull(dead, kStands, {&remote, 1}, {&local, 1}, 0, 100), PullStatus::kPeerGone);
}

TEST_F(Pull, InsideOneProcess) {
  for (std::size_t i = 0; i < kMebibyte; ++i) source_.data()[i] = pattern(i);
  PullSource self = peer();
  self.same_process = true;
  const std::array<RemotePiece, 3> from{source(5, 1000), source(1005, 1), source(1006, 9000)};
  const std::array<transport::Piece, 2> to{target(10, 4000), target(4010, 6001)};
  clear();
  ASSERT_EQ(pull(self, kStands, from, to, 0, 700), PullStatus::kOk);
  ASSERT_EQ(pull(self, kStands, from, to, 700, 10'001 - 700), PullStatus::kOk);
  expect_pattern(5, 10, 10'001);

  ::munmap(source_.data() + kMebibyte, 4096);
  const RemotePiece gone = source(kMebibyte - 10, 20);
  EXPECT_EQ(pull(self, kStands, {&gone, 1}, {to.data(), 1}, 0, 20), PullStatus::kMemoryGone);
}

/// The bytes are there, and may be of something else.
TEST_F(Pull, WhatWasTakenBackIsSaidToBe) {
  const RemotePiece remote = source(0, 100);
  const transport::Piece local = target(0, 100);
  EXPECT_EQ(pull(peer(), {kWithdrawn, 0}, {&remote, 1}, {&local, 1}, 0, 100), PullStatus::kWithdrawn);
  EXPECT_EQ(pull(peer(), {kWithdrawn, 1}, {&remote, 1}, {&local, 1}, 0, 100), PullStatus::kOk);
  PullSource self = peer();
  self.pid = static_cast<std::uint32_t>(::getpid());
  self.same_process = true;
  EXPECT_EQ(pull(self, {kWithdrawn, 1}, {&remote, 1}, {&local, 1}, 0, 100), PullStatus::kWithdrawn);
  EXPECT_EQ(pull(self, {kWithdrawn, 0}, {&remote, 1}, {&local, 1}, 0, 100), PullStatus::kOk);
  self.withdrawals = 8;
  EXPECT_EQ(pull(self, {kWithdrawn, 0}, {&remote, 1}, {&local, 1}, 0, 100), PullStatus::kWithdrawn)
      << "the HCA that counted is gone";
}

}  // namespace
}  // namespace tensorwire::softhca
