// Small tools for text that somebody else wrote: nothing is trusted, nothing throws.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tensorwire::host {

[[nodiscard]] std::string_view trimmed(std::string_view text);
/// Without their ends; an empty last one is left out.
[[nodiscard]] std::vector<std::string_view> lines_of(std::string_view text);
/// What stands between blanks and tabs.
[[nodiscard]] std::vector<std::string_view> words_of(std::string_view text);
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char delimiter);
/// What stands between `before` and the next `after` (or the end, where `after` is empty or missing).
[[nodiscard]] std::optional<std::string_view> between(std::string_view text, std::string_view before,
                                                      std::string_view after);

template <class Number>
std::from_chars_result from_chars_of(std::string_view text, Number& value, int base) {
  if constexpr (std::is_floating_point_v<Number>) {
    return std::from_chars(text.data(), text.data() + text.size(), value);
  } else {
    return std::from_chars(text.data(), text.data() + text.size(), value, base);
  }
}

/// All of `text` as a number. The base counts for integers.
template <class Number>
[[nodiscard]] std::optional<Number> number_in(std::string_view text, int base = 10) {
  Number value{};
  const auto [end, error] = from_chars_of(text, value, base);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

/// The digits at the begin of `text` as a number.
[[nodiscard]] std::optional<int> leading_number(std::string_view text);

}  // namespace tensorwire::host
