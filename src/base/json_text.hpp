// Text inside JSON, for the lines and files that this library writes itself (logs, traces, flight records). Reading
// JSON is the command line's business.
#pragma once

#include <string>
#include <string_view>

namespace tensorwire {

/// The text in quotes, escaped. Bytes that are not UTF-8 become U+FFFD, so that what is written is always valid JSON.
[[nodiscard]] std::string json_quoted(std::string_view text);

}  // namespace tensorwire
