#include "base/log.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "scoped_variable.hpp"

namespace tensorwire {
namespace {

using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

TEST(Log, OneLineWithLevelAndText) {
  set_log_level(LogLevel::debug);
  CaptureStderr();
  log_debug("a {} is not a format");
  log_info("b");
  log_warn("c");
  log_error("d");
  EXPECT_EQ(GetCapturedStderr(),
            "[tensorwire] debug: a {} is not a format\n[tensorwire] info: b\n[tensorwire] warning: c\n"
            "[tensorwire] error: d\n");
}

TEST(Log, BelowTheLevelNothingIsWritten) {
  set_log_level(LogLevel::warn);
  EXPECT_FALSE(log_enabled(LogLevel::info));
  EXPECT_TRUE(log_enabled(LogLevel::warn));
  CaptureStderr();
  log_info("silent");
  log_warn("heard");
  set_log_level(LogLevel::off);
  log_error("silent");
  EXPECT_EQ(GetCapturedStderr(), "[tensorwire] warning: heard\n");
  EXPECT_FALSE(log_enabled(LogLevel::off));
  set_log_level(LogLevel::warn);
}

TEST(Log, LinesOfSeveralThreadsStayWhole) {
  set_log_level(LogLevel::info);
  CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 200; ++i) log_info("0123456789");
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = GetCapturedStderr();
  const std::string line = "[tensorwire] info: 0123456789\n";
  ASSERT_EQ(text.size(), 800 * line.size());
  for (std::size_t at = 0; at < text.size(); at += line.size()) ASSERT_EQ(text.substr(at, line.size()), line);
  set_log_level(LogLevel::warn);
}

// The level is read at the first use in a process, so each case runs in a new one.
int first_use_with(const char* level) {
  const test::ScopedVariable variable{"TENSORWIRE_LOG", level};
  log_info("first line");
  return 0;
}

TEST(LogDeathTest, LevelComesFromTheEnvironment) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(std::exit(first_use_with("info")), testing::ExitedWithCode(0), "^.tensorwire. info: first line\n$");
}

int first_use_as(const char* format, const char* message) {
  const test::ScopedVariable variable{"TENSORWIRE_LOG_FORMAT", format};
  log_warn(message);
  return 0;
}

TEST(LogDeathTest, JsonHasAnObjectALine) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(std::exit(first_use_as("json", "a \"b\"\n\x01\xff")), testing::ExitedWithCode(0),
              "^.\"time\":\"[0-9-]+T[0-9:.]+Z\",\"level\":\"warning\",\"process\":[0-9]+,\"thread\":[0-9]+,"
              "\"message\":\"a .\"b.\".n.u0001.ufffd\"}\n$");
}

TEST(LogDeathTest, UnknownFormatIsSaidAndTextHolds) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(std::exit(first_use_as("xml", "m")), testing::ExitedWithCode(0),
              "^.tensorwire. warning: TENSORWIRE_LOG_FORMAT=xml is not one of text, json; using text\n"
              ".tensorwire. warning: m\n$");
}

TEST(LogDeathTest, UnknownLevelIsSaidAndWarnHolds) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(std::exit(first_use_with("loud")), testing::ExitedWithCode(0),
              "^.tensorwire. warning: TENSORWIRE_LOG=loud is not one of off, error, warn, info, debug; using warn\n$");
}

}  // namespace
}  // namespace tensorwire
