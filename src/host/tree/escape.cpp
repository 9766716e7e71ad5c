#include "host/tree/escape.hpp"

#include <charconv>
#include <cstddef>

namespace tensorwire::host {

namespace {

constexpr std::size_t kLongestRun = 65'536;
constexpr std::size_t kShortestRun = 4;

void append_hex(std::string& out, char byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(byte);
  out.append("\\x").append(1, kDigits[value >> 4]).append(1, kDigits[value & 15]);
}

/// The number of zero bytes at the begin.
std::size_t zeros(std::string_view bytes) {
  const auto end = bytes.find_first_not_of('\0');
  return end == std::string_view::npos ? bytes.size() : end;
}

/// Reads "xNN" or "zN;" after a backslash. @return how many characters it is long; 0 when it is neither.
std::size_t read_number(std::string_view text, std::string& out) {
  unsigned value = 0;
  const char* begin = text.data() + 1;
  if (text.starts_with('x') && text.size() >= 3) {
    const auto [end, error] = std::from_chars(begin, begin + 2, value, 16);
    if (error != std::errc{} || end != begin + 2) return 0;
    out.push_back(static_cast<char>(value));
    return 3;
  }
  if (!text.starts_with('z')) return 0;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data() + text.size() || *end != ';' || value > kLongestRun) return 0;
  out.append(value, '\0');
  return static_cast<std::size_t>(end - text.data()) + 1;
}

}  // namespace

std::string escaped(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + 8);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char byte = bytes[i];
    const std::size_t run = byte == '\0' ? std::min(zeros(bytes.substr(i)), kLongestRun) : 0;
    if (run >= kShortestRun) {
      out.append("\\z").append(std::to_string(run)).append(";");
      i += run - 1;
    } else if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte == '\\') {
      out += "\\\\";
    } else if (static_cast<unsigned char>(byte) < 0x20 || static_cast<unsigned char>(byte) >= 0x7f ||
               (i == 0 && byte == '!')) {
      append_hex(out, byte);
    } else {
      out.push_back(byte);
    }
  }
  return out;
}

std::string unescaped(std::string_view line) {
  std::string out;
  out.reserve(line.size());
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char next = line[i] == '\\' && i + 1 < line.size() ? line[i + 1] : '\0';
    if (next == 'n' || next == 't' || next == '\\') {
      out.push_back(next == 'n' ? '\n' : next == 't' ? '\t' : '\\');
      ++i;
    } else if (next == 'x' || next == 'z') {
      const std::size_t length = read_number(line.substr(i + 1), out);
      if (length == 0) out.push_back(line[i]);
      i += length;
    } else {
      out.push_back(line[i]);
    }
  }
  return out;
}

}  // namespace tensorwire::host
