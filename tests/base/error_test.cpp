#include "base/error.hpp"

#include <gtest/gtest.h>

#include <cerrno>

namespace tensorwire {
namespace {

TEST(Error, IsOneLineOfItsParts) {
  const Error error{"open device soft3", "no such device", "Use one of soft0, soft1"};
  EXPECT_STREQ(error.what(), "open device soft3: no such device. Use one of soft0, soft1");
  EXPECT_EQ(error.parts().what, "open device soft3");
  EXPECT_EQ(error.parts().why, "no such device");
  EXPECT_EQ(error.parts().remedy, "Use one of soft0, soft1");
}

TEST(Error, WithoutRemedyEndsAfterTheCause) {
  EXPECT_STREQ((Error{"open device soft3", "no such device"}.what()), "open device soft3: no such device");
}

TEST(Error, ErrnoIsTextAndName) {
  EXPECT_EQ(errno_text(EINVAL), "Invalid argument (EINVAL)");
  EXPECT_EQ(errno_text(123'456), "error 123456");
  EXPECT_STREQ(system_error("bind 127.0.0.1:4791", EADDRINUSE, "Stop the other program").what(),
               "bind 127.0.0.1:4791: Address already in use (EADDRINUSE). Stop the other program");
}

}  // namespace
}  // namespace tensorwire
