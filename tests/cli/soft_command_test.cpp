#include "cli/soft_command.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.hpp"

namespace tensorwire::cli {
namespace {

TEST(PrependToPath, PutsTheFolderFirstAndOnce) {
  EXPECT_EQ(prepend_to_path("/ours", ""), "/ours");
  EXPECT_EQ(prepend_to_path("/ours", "/a:/b"), "/ours:/a:/b");
  EXPECT_EQ(prepend_to_path("/ours", "/a:/ours:/b:/ours"), "/ours:/a:/b");
  EXPECT_EQ(prepend_to_path("/ours", "/oursandmore"), "/ours:/oursandmore");
}

// The loader reads an empty entry as the current folder, which nobody asks for on purpose.
TEST(PrependToPath, DropsEmptyEntries) {
  EXPECT_EQ(prepend_to_path("/ours", ":/a::/b:"), "/ours:/a:/b");
  EXPECT_EQ(prepend_to_path("/ours", ":::"), "/ours");
}

class SoftLibrary : public ::testing::Test {
 protected:
  void TearDown() override { unsetenv("TENSORWIRE_SOFT_LIBRARY"); }
};

TEST_F(SoftLibrary, FolderOfTheChosenFile) {
  setenv("TENSORWIRE_SOFT_LIBRARY", "/proc/self/exe", 1);
  EXPECT_EQ(soft_library_folder(), "/proc/self");
}

TEST_F(SoftLibrary, MissingFileIsNamed) {
  setenv("TENSORWIRE_SOFT_LIBRARY", "/nonexistent/libibverbs.so.1", 1);
  try {
    (void)soft_library_folder();
    FAIL() << "found a library that is not there";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/libibverbs.so.1"), std::string::npos) << error.what();
  }
}

TEST_F(SoftLibrary, NoCommandIsAnError) { EXPECT_THROW(run_on_soft_hca({}, {.sysfs = false}), Error); }

TEST_F(SoftLibrary, UnknownProgramIsNamed) {
  setenv("TENSORWIRE_SOFT_LIBRARY", "/proc/self/exe", 1);
  const char* const before = std::getenv("LD_LIBRARY_PATH");
  const std::string kept = before == nullptr ? "" : before;
  try {
    run_on_soft_hca({"no-such-program-anywhere", "--flag"}, {.sysfs = false});
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no-such-program-anywhere"), std::string::npos) << error.what();
  }
  before == nullptr ? unsetenv("LD_LIBRARY_PATH") : setenv("LD_LIBRARY_PATH", kept.c_str(), 1);
}

}  // namespace
}  // namespace tensorwire::cli
