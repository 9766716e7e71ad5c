// Any bytes as one line of printable text, and back. Long runs of zero bytes, of which PCI configuration space is
// made, are written as their length.
#pragma once

#include <string>
#include <string_view>

namespace tensorwire::host {

/// \n, \t and \\ as in C, \xNN for other control bytes, \z<count>; for four zero bytes or more. A leading '!' becomes
/// \x21.
[[nodiscard]] std::string escaped(std::string_view bytes);
/// What is no escape stays as it is. A run is at most 64 KiB long.
[[nodiscard]] std::string unescaped(std::string_view line);

}  // namespace tensorwire::host
