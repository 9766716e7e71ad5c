#include "base/env.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "scoped_variable.hpp"

namespace tensorwire {
namespace {

using test::ScopedVariable;

// Any row will do: the readers do not care which variable it is.
constexpr env::Name kAny{"TENSORWIRE_FAULTS"};

template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Env, UnsetAndEmptyAreNothing) {
  {
    const ScopedVariable empty{kAny.c_str(), ""};
    EXPECT_EQ(env::get(kAny), std::nullopt);
    EXPECT_EQ(env::get_int(kAny, 7), 7);
  }
  unsetenv(kAny.c_str());
  EXPECT_EQ(env::get(kAny), std::nullopt);
  EXPECT_EQ(env::get_int(kAny, 7), 7);
  EXPECT_TRUE(env::get_bool(kAny, true));
  EXPECT_EQ(env::get_bytes(kAny, 42), 42U);
  EXPECT_EQ(env::get_duration(kAny, 3 * kMicrosecond), 3 * kMicrosecond);
  EXPECT_EQ(env::get_choice(kAny, "b", {"a", "b"}), "b");
}

TEST(Env, ReadsTyped) {
  EXPECT_EQ((ScopedVariable{kAny.c_str(), "text"}, env::get(kAny)), "text");
  EXPECT_EQ((ScopedVariable{kAny.c_str(), "-12"}, env::get_int(kAny, 0)), -12);
  EXPECT_TRUE((ScopedVariable{kAny.c_str(), "on"}, env::get_bool(kAny, false)));
  EXPECT_FALSE((ScopedVariable{kAny.c_str(), "no"}, env::get_bool(kAny, true)));
  EXPECT_EQ((ScopedVariable{kAny.c_str(), "256KiB"}, env::get_bytes(kAny, 0)), 262'144U);
  EXPECT_EQ((ScopedVariable{kAny.c_str(), "75us"}, env::get_duration(kAny, 0)), 75 * kMicrosecond);
  EXPECT_EQ((ScopedVariable{kAny.c_str(), "a"}, env::get_choice(kAny, "b", {"a", "b"})), "a");
}

TEST(Env, ErrorsNameTheVariableItsTextAndTheCause) {
  {
    const ScopedVariable bad{kAny.c_str(), "12x"};
    EXPECT_EQ(error_of([] { (void)env::get_int(kAny, 0); }),
              "read TENSORWIRE_FAULTS=12x: not a whole number. Correct the variable or unset it");
    EXPECT_NE(error_of([] { (void)env::get_bool(kAny, false); }).find("neither 1, true"), std::string::npos);
    EXPECT_NE(error_of([] { (void)env::get_bytes(kAny, 0); }).find("=12x: unknown unit \"x\""), std::string::npos);
    EXPECT_NE(error_of([] { (void)env::get_duration(kAny, 0); }).find("=12x: unknown unit \"x\""), std::string::npos);
    EXPECT_NE(error_of([] {
                (void)env::get_choice(kAny, "a", {"a", "b"});
              }).find("not one of a, b"),
              std::string::npos);
  }
  const ScopedVariable bad{kAny.c_str(), "12"};
  EXPECT_NE(error_of([] { (void)env::get_int(kAny, 0, 0, 11); }).find("not between 0 and 11"), std::string::npos);
  EXPECT_EQ(env::get_int(kAny, 0, 0, 12), 12);
}

TEST(Env, IntegerOutOfRangeOf64BitsIsSaidAsRange) {
  const ScopedVariable bad{kAny.c_str(), "99999999999999999999"};
  EXPECT_NE(error_of([] { (void)env::get_int(kAny, 0); }).find("not between"), std::string::npos);
}

TEST(Env, MisspelledNamesAreListedSorted) {
  const ScopedVariable second{"TENSORWIRE_ZZZ_NO_SUCH", "1"};
  const ScopedVariable first{"TENSORWIRE_AAA_NO_SUCH", "1"};
  const ScopedVariable known{kAny.c_str(), "1"};
  const ScopedVariable foreign{"TENSORWIREX", "1"};
  EXPECT_EQ(env::unknown_variables(), (std::vector<std::string>{"TENSORWIRE_AAA_NO_SUCH", "TENSORWIRE_ZZZ_NO_SUCH"}));
}

TEST(Env, EveryRowIsComplete) {
  for (const env::Variable& row : env::kVariables) {
    EXPECT_TRUE(row.name.starts_with("TENSORWIRE_")) << row.name;
    EXPECT_FALSE(row.default_text.empty()) << row.name;
    EXPECT_FALSE(row.meaning.empty()) << row.name;
    EXPECT_EQ(row.meaning.find('\n'), std::string_view::npos) << row.name;
  }
}

}  // namespace
}  // namespace tensorwire
