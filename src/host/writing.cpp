#include "host/writing.hpp"

#include <algorithm>

namespace tensorwire::host {

std::string printable(std::string_view text) {
  std::string clean{text};
  std::ranges::replace_if(
      clean, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return clean;
}

}  // namespace tensorwire::host
