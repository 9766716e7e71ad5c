#include "base/json_text.hpp"

#include <gtest/gtest.h>

namespace tensorwire {
namespace {

TEST(JsonText, EscapesWhatJsonWants) {
  EXPECT_EQ(json_quoted(""), "\"\"");
  EXPECT_EQ(json_quoted("a/b"), "\"a/b\"");
  EXPECT_EQ(json_quoted("\"\\\n\t"), "\"\\\"\\\\\\n\\u0009\"");
  EXPECT_EQ(json_quoted(std::string_view{"\0x", 2}), "\"\\u0000x\"");
}

TEST(JsonText, KeepsUtf8AndReplacesWhatIsNone) {
  for (const char* text : {"\u00e9", "\u20ac", "\U0001f600", "\U0010ffff"}) {
    EXPECT_EQ(json_quoted(text), "\"" + std::string{text} + "\"");
  }
  EXPECT_EQ(json_quoted("\xff"), "\"\\ufffd\"");
  EXPECT_EQ(json_quoted("\xc0\xaf"), "\"\\ufffd\\ufffd\"");                    // overlong
  EXPECT_EQ(json_quoted("\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\"");         // surrogate
  EXPECT_EQ(json_quoted("\xf4\x90\x80\x80").find("\xf4"), std::string::npos);  // beyond the last character
  EXPECT_EQ(json_quoted("\xe2\x82"), "\"\\ufffd\\ufffd\"");                    // cut
}

}  // namespace
}  // namespace tensorwire
