// The copy past the caches gives the same bytes as any other, at every alignment.
#include "base/stream_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tensorwire {
namespace {

TEST(StreamCopy, EveryAlignmentAndLength) {
  std::vector<std::byte> from(1024), to(1024), wanted(1024);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (std::size_t source = 0; source < 3; ++source) {
    for (std::size_t at = 0; at < 70; ++at) {
      for (const std::size_t bytes : {0, 1, 15, 63, 64, 65, 127, 200, 640}) {
        std::fill(to.begin(), to.end(), std::byte{0});
        std::fill(wanted.begin(), wanted.end(), std::byte{0});
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(source), bytes,
                    wanted.begin() + static_cast<std::ptrdiff_t>(at));
        stream_copy(to.data() + at, from.data() + source, bytes);
        ASSERT_EQ(to, wanted) << source << " to " << at << ", " << bytes << " bytes";
      }
    }
  }
}

}  // namespace
}  // namespace tensorwire
