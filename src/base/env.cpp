#include "base/env.hpp"

#include <unistd.h>

#include <charconv>
#include <cstdlib>

#include "base/error.hpp"
#include "base/units.hpp"

namespace tensorwire::env {

namespace {

constexpr std::string_view kPrefix = "TENSORWIRE_";

constexpr bool rows_are_sorted_and_unique() {
  return std::ranges::adjacent_find(kVariables, std::greater_equal{}, &Variable::name) == kVariables.end();
}
static_assert(rows_are_sorted_and_unique(), "keep kVariables in alphabetical order, each name once");

Error bad_value(Name name, const std::string& text, const std::string& why) {
  return Error{std::string{"read "} + name.c_str() + "=" + text, why, "Correct the variable or unset it"};
}

/// Reads by `parse`, which throws an Error without knowing whose text it was; the error is given the variable's name.
template <typename Value, typename Parse>
Value get_parsed(Name name, Value fallback, Parse parse) {
  const auto text = get(name);
  if (!text) return fallback;
  try {
    return parse(*text);
  } catch (const Error& error) {
    throw bad_value(name, *text, error.parts().why);
  }
}

}  // namespace

std::optional<std::string> get(Name name) {
  const char* text = std::getenv(name.c_str());
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::string{text};
}

std::int64_t get_int(Name name, std::int64_t fallback, std::int64_t lowest, std::int64_t highest) {
  const auto text = get(name);
  if (!text) return fallback;
  std::int64_t value = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, code] = std::from_chars(text->data(), end, value);
  if (code == std::errc::invalid_argument || (code == std::errc{} && stop != end)) {
    throw bad_value(name, *text, "not a whole number");
  }
  if (code == std::errc::result_out_of_range || value < lowest || value > highest) {
    throw bad_value(name, *text, "not between " + std::to_string(lowest) + " and " + std::to_string(highest));
  }
  return value;
}

bool get_bool(Name name, bool fallback) {
  const auto text = get(name);
  if (!text) return fallback;
  for (const std::string_view yes : {"1", "true", "yes", "on"}) {
    if (*text == yes) return true;
  }
  for (const std::string_view no : {"0", "false", "no", "off"}) {
    if (*text == no) return false;
  }
  throw bad_value(name, *text, "neither 1, true, yes, on nor 0, false, no, off");
}

std::uint64_t get_bytes(Name name, std::uint64_t fallback) { return get_parsed(name, fallback, parse_bytes); }

Ps get_duration(Name name, Ps fallback) { return get_parsed(name, fallback, parse_duration); }

std::string get_choice(Name name, std::string_view fallback, std::initializer_list<std::string_view> choices) {
  auto text = get(name);
  if (!text) return std::string{fallback};
  std::string list;
  for (const std::string_view choice : choices) {
    if (*text == choice) return *std::move(text);
    list.append(list.empty() ? "" : ", ").append(choice);
  }
  throw bad_value(name, *text, "not one of " + list);
}

std::vector<std::string> unknown_variables() {
  std::vector<std::string> unknown;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line{*entry};
    const std::string_view name = line.substr(0, line.find('='));
    if (!name.starts_with(kPrefix)) continue;
    if (std::ranges::find(kVariables, name, &Variable::name) == kVariables.end()) unknown.emplace_back(name);
  }
  std::ranges::sort(unknown);
  return unknown;
}

}  // namespace tensorwire::env
