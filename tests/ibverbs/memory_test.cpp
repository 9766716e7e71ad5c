#include <sys/mman.h>

#include <cstddef>

#include "ibverbs/verbs_fixture.hpp"

namespace tensorwire::ibverbs::test {
namespace {

class MemoryTest : public VerbsTest {
 protected:
  static constexpr std::size_t kBytes = 8192;
  /// Between neighbours that stay: where it is unmapped, the hole is too small for what an allocator maps.
  void* map(int protection) {
    void* const all = mmap(nullptr, 3 * kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(all, MAP_FAILED);
    memory_ = static_cast<std::byte*>(all);
    EXPECT_EQ(mprotect(memory_ + kBytes, kBytes, protection), 0);
    mapped_ = true;
    return memory_ + kBytes;
  }
  void unmap() {
    ASSERT_EQ(munmap(memory_ + kBytes, kBytes), 0);
    mapped_ = false;
  }
  void TearDown() override {
    if (memory_ == nullptr) return;
    munmap(memory_, kBytes);
    if (mapped_) munmap(memory_ + kBytes, kBytes);
    munmap(memory_ + 2 * kBytes, kBytes);
  }

 private:
  std::byte* memory_ = nullptr;
  bool mapped_ = false;  ///< what map() gave
};

TEST_F(MemoryTest, RegionSaysWhatWasRegistered) {
  std::vector<std::uint8_t> bytes(5000);
  const Owned<ibv_mr> mr = register_bytes(bytes);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->context, context());
  EXPECT_EQ(mr->pd, pd());
  EXPECT_EQ(mr->addr, bytes.data());
  EXPECT_EQ(mr->length, bytes.size());
  EXPECT_NE(mr->rkey, 0U);
  const Owned<ibv_mr> again = register_bytes(bytes);
  ASSERT_NE(again, nullptr);
  EXPECT_NE(again->rkey, mr->rkey);
}

TEST_F(MemoryTest, RemoteWriteNeedsLocalWrite) {
  std::vector<std::uint8_t> bytes(64);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(pd(), bytes.data(), bytes.size(), IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_mr(pd(), bytes.data(), bytes.size(), IBV_ACCESS_REMOTE_ATOMIC), nullptr);
}

TEST_F(MemoryTest, HintsAreAcceptedAndUnknownRightsAreNot) {
  std::vector<std::uint8_t> bytes(64);
  volatile int access = kAllAccess | IBV_ACCESS_RELAXED_ORDERING;  // not a constant: the macro takes ibv_reg_mr_iova2
  EXPECT_NE(owned(ibv_reg_mr(pd(), bytes.data(), bytes.size(), access), ibv_dereg_mr), nullptr);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(pd(), bytes.data(), bytes.size(), IBV_ACCESS_ON_DEMAND), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_reg_mr(pd(), bytes.data(), bytes.size(), IBV_ACCESS_ZERO_BASED), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(MemoryTest, MemoryThatIsNotThereFaults) {
  void* gone = map(PROT_READ | PROT_WRITE);
  unmap();
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(pd(), gone, kBytes, kAllAccess), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(MemoryTest, ReadOnlyMemoryCanBeRegisteredForReadingOnly) {
  void* memory = map(PROT_READ);
  EXPECT_NE(owned(ibv_reg_mr(pd(), memory, kBytes, 0), ibv_dereg_mr), nullptr);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(pd(), memory, kBytes, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST_F(MemoryTest, OtherIova) {
  std::vector<std::uint8_t> bytes(4096);
  EXPECT_NE(owned(ibv_reg_mr_iova(pd(), bytes.data(), bytes.size(), 0x10000, kAllAccess), ibv_dereg_mr), nullptr);
}

TEST_F(MemoryTest, DomainInUseCannotBeFreed) {
  ibv_pd* domain = ibv_alloc_pd(context());
  ASSERT_NE(domain, nullptr);
  std::vector<std::uint8_t> bytes(4096);
  ibv_mr* mr = ibv_reg_mr(domain, bytes.data(), bytes.size(), kAllAccess);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(domain), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(domain), 0);
}

}  // namespace
}  // namespace tensorwire::ibverbs::test
