// What reports and comparisons are written with.
#pragma once

#include <string>
#include <string_view>

namespace tensorwire::host {

/// Text of a recording or a log for a terminal: control characters become blanks.
[[nodiscard]] std::string printable(std::string_view text);

/// "[a,b]" of what `shown` makes of each element.
template <class Range, class Shown>
[[nodiscard]] std::string json_array(const Range& range, Shown shown) {
  std::string text = "[";
  for (const auto& element : range) text += (text.size() > 1 ? "," : "") + shown(element);
  return text + "]";
}

}  // namespace tensorwire::host
