#include "base/json_text.hpp"

#include <array>
#include <cstddef>

namespace tensorwire {

namespace {

/// How many bytes the UTF-8 character at the head of `text` has; 0 when it is not one.
std::size_t character_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  std::size_t length = 0;
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) length = 2;
  if (first >= 0xe0 && first <= 0xef) length = 3;
  if (first >= 0xf0 && first <= 0xf4) length = 4;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, beyond U+10FFFF.
  const unsigned char second = byte(1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f)) return 0;
  if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return 0;
  return length;
}

void append_control(std::string& to, unsigned char character) {
  constexpr auto kDigits = std::to_array("0123456789abcdef");
  to += "\\u00";
  to += kDigits[character >> 4];
  to += kDigits[character & 15];
}

}  // namespace

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    const char first = text.front();
    if (length == 0) {
      quoted += "\\ufffd";
    } else if (first == '"' || first == '\\') {
      quoted += '\\';
      quoted += first;
    } else if (first == '\n') {
      quoted += "\\n";
    } else if (static_cast<unsigned char>(first) < 0x20) {
      append_control(quoted, static_cast<unsigned char>(first));
    } else {
      quoted += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return quoted += '"';
}

}  // namespace tensorwire
