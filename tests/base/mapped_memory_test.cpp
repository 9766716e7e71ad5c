#include "base/mapped_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "base/error.hpp"

namespace tensorwire {
namespace {

TEST(MappedMemory, IsZeroedAndWritable) {
  const MappedMemory memory{1'000, "test memory"};
  ASSERT_GE(memory.bytes().size(), 1'000U);
  EXPECT_TRUE(std::ranges::all_of(memory.bytes(), [](std::byte b) { return b == std::byte{0}; }));
  std::ranges::fill(memory.bytes(), std::byte{7});
}

TEST(MappedMemory, LargeOnesBeginAndEndAtHugePages) {
  constexpr std::size_t kHugePage = 2U << 20;
  for (const std::size_t bytes : {std::size_t{256} << 10, kHugePage, kHugePage + 1}) {
    const MappedMemory memory{bytes, "test memory"};
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.bytes().data()) % kHugePage, 0U) << bytes;
    EXPECT_EQ(memory.bytes().size(), (bytes + kHugePage - 1) / kHugePage * kHugePage) << bytes;
    memory.bytes().back() = std::byte{1};
  }
}

TEST(MappedMemory, NoneAtAllIsStillAnObject) {
  const MappedMemory memory{0, "test memory"};
  EXPECT_FALSE(memory.bytes().empty());
}

TEST(MappedMemory, SaysWhatIsTooLarge) {
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX / 2}) {
    try {
      const MappedMemory memory{bytes, "scratch memory", "Use smaller slots"};
      FAIL() << "mapped " << bytes;
    } catch (const Error& error) {
      const std::string line = error.what();
      EXPECT_NE(line.find("scratch memory"), std::string::npos) << line;
      EXPECT_NE(line.find("Use smaller slots"), std::string::npos) << line;
    }
  }
}

}  // namespace
}  // namespace tensorwire
