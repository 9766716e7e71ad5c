#include "softhca/host_memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <numeric>
#include <vector>

#include "wire/icrc.hpp"

namespace tensorwire::softhca {
namespace {

class Pages {
 public:
  Pages(std::size_t count, int rights)
      : bytes_(count * size()), at_(mmap(nullptr, bytes_, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~Pages() { munmap(at_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  [[nodiscard]] static std::size_t size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
  [[nodiscard]] std::uint64_t page(std::size_t index) const {
    return reinterpret_cast<std::uint64_t>(at_) + index * size();
  }
  void unmap(std::size_t index) const { munmap(reinterpret_cast<void*>(page(index)), size()); }
  void protect(std::size_t index, int rights) const { mprotect(reinterpret_cast<void*>(page(index)), size(), rights); }

 private:
  std::size_t bytes_;
  void* at_;
};

TEST(CheckMapped, KnowsHolesAndRights) {
  const Pages pages{4, PROT_READ | PROT_WRITE};
  EXPECT_EQ(check_mapped(pages.page(0), 4 * Pages::size(), true), 0);
  pages.protect(1, PROT_READ);
  EXPECT_EQ(check_mapped(pages.page(0), 4 * Pages::size(), true), EFAULT);
  EXPECT_EQ(check_mapped(pages.page(0), 4 * Pages::size(), false), 0) << "split mappings are still one range";
  pages.unmap(2);
  EXPECT_EQ(check_mapped(pages.page(0), 4 * Pages::size(), false), EFAULT);
  EXPECT_EQ(check_mapped(pages.page(0), 2 * Pages::size(), false), 0);
  EXPECT_EQ(check_mapped(pages.page(0), 2 * Pages::size() + 1, false), EFAULT);
  EXPECT_EQ(check_mapped(pages.page(3), Pages::size(), true), 0);
}

TEST(CheckMapped, RefusesNullAndWrapping) {
  EXPECT_EQ(check_mapped(0, 1, false), EFAULT);
  EXPECT_EQ(check_mapped(~0ULL - 10, 100, false), EFAULT);
  EXPECT_EQ(check_mapped(0, 0, true), 0);
}

TEST(HostMemory, AtomicsAndTheErrorWhenTheWordIsGone) {
  HostMemory memory;
  const Pages pages{1, PROT_READ | PROT_WRITE};
  auto* const word = reinterpret_cast<std::uint64_t*>(pages.page(0) + 8);
  *word = 5;
  std::uint64_t original = 0;
  EXPECT_TRUE(memory.atomic(pages.page(0) + 8, {.compare = false, .operand = 3, .swap = 0}, original));
  EXPECT_EQ(original, 5U);
  EXPECT_TRUE(memory.atomic(pages.page(0) + 8, {.compare = true, .operand = 5, .swap = 1}, original));
  EXPECT_EQ(original, 8U);
  EXPECT_EQ(*word, 8U);
  EXPECT_TRUE(memory.atomic(pages.page(0) + 8, {.compare = true, .operand = 8, .swap = 1}, original));
  EXPECT_EQ(original, 8U);
  EXPECT_EQ(*word, 1U);
#ifndef TENSORWIRE_TSAN
  pages.protect(0, PROT_READ);
  EXPECT_FALSE(memory.atomic(pages.page(0) + 8, {.compare = false, .operand = 3, .swap = 0}, original));
  pages.unmap(0);
  EXPECT_FALSE(memory.atomic(pages.page(0) + 8, {.compare = false, .operand = 3, .swap = 0}, original));
#endif
}

TEST(HostMemory, CopiesWithAndWithoutCrc) {
  HostMemory memory;
  for (const std::size_t length : {0U, 1U, 7U, 15U, 16U, 17U, 4096U, 5000U}) {
    SCOPED_TRACE(length);
    std::vector<std::byte> from(length), to(length);
    for (std::size_t i = 0; i < length; ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
    const std::uint32_t right = wire::crc_update(5, from);

    std::uint32_t crc = 5;
    ASSERT_TRUE(memory.load(reinterpret_cast<std::uint64_t>(from.data()), to, &crc));
    EXPECT_EQ(to, from);
    EXPECT_EQ(crc, right);

    for (std::uint32_t* want_crc : {static_cast<std::uint32_t*>(nullptr), &crc}) {
      std::vector<std::byte> stored(length);
      crc = 5;
      ASSERT_TRUE(memory.store(reinterpret_cast<std::uint64_t>(stored.data()), from, want_crc));
      EXPECT_EQ(stored, from);
      EXPECT_EQ(crc, want_crc == nullptr ? 5U : right);
    }
  }
}

#ifndef TENSORWIRE_TSAN  // which does not survive a jump out of its memcpy
TEST(HostMemory, VanishedMemoryIsAnErrorAndNotASignal) {
  HostMemory memory;
  const Pages pages{2, PROT_READ | PROT_WRITE};
  pages.unmap(1);
  std::vector<std::byte> bytes(Pages::size() * 2);
  std::uint32_t crc = 0;
  for (int again = 0; again < 3; ++again) {
    EXPECT_FALSE(memory.load(pages.page(0), bytes, &crc));
    EXPECT_FALSE(memory.store(pages.page(0), bytes, nullptr));
    EXPECT_FALSE(memory.store(pages.page(0), bytes, &crc));
  }
  EXPECT_TRUE(memory.load(pages.page(0), std::span{bytes}.first(Pages::size()), &crc));
  pages.protect(0, PROT_READ);
  EXPECT_FALSE(memory.store(pages.page(0), std::span{bytes}.first(1), nullptr));
}
#endif

/// A fault that is not in a copy is nobody's but the program's.
TEST(HostMemoryDeathTest, OtherFaultsStillKill) {
  const HostMemory memory;
  const Pages pages{1, PROT_NONE};
#if defined(TENSORWIRE_ASAN)  // a sanitizer's handler was there first, and exits with a report
  const auto dies = ::testing::ExitedWithCode(1);
#elif defined(TENSORWIRE_TSAN)
  const auto dies = ::testing::ExitedWithCode(66);
#else
  const auto dies = ::testing::KilledBySignal(SIGSEGV);
#endif
  EXPECT_EXIT(*reinterpret_cast<volatile int*>(pages.page(0)) = 1, dies, "");
}

}  // namespace
}  // namespace tensorwire::softhca
