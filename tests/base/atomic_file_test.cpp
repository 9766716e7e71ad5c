#include "base/atomic_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "base/unique_fd.hpp"

namespace tensorwire {
namespace {

namespace fs = std::filesystem;

class AtomicFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "tw_atomic_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  static std::string content(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  fs::path folder_;
};

TEST_F(AtomicFile, IsReplacedAndNothingIsLeftBeside) {
  replace_file((folder_ / "report").string(), "old");
  replace_file((folder_ / "report").string(), "new");
  EXPECT_EQ(content(folder_ / "report"), "new");
  EXPECT_EQ(files(), 1U);
}

TEST_F(AtomicFile, ALinkStaysOne) {
  std::ofstream(folder_ / "real") << "old";
  fs::create_symlink("real", folder_ / "link");
  replace_file((folder_ / "link").string(), "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(content(folder_ / "real"), "new");
}

TEST_F(AtomicFile, APipeIsWrittenToAndStaysOne) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const UniqueFd reader{open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  ASSERT_TRUE(reader);
  replace_file(pipe.string(), "text");
  std::array<char, 8> got{};
  EXPECT_EQ(read(reader.get(), got.data(), got.size()), 4);
  EXPECT_STREQ(got.data(), "text");
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(files(), 1U);
}

TEST_F(AtomicFile, AFolderThatIsNotThereIsNamed) {
  try {
    replace_file((folder_ / "none/report").string(), "text");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string{error.what()}.find("none/report"), std::string::npos);
  }
}

}  // namespace
}  // namespace tensorwire
