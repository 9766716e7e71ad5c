// Enumerators as C programs hand them over: any number may stand in one, which C++ may not read as the enum.
#pragma once

#include <cstring>

namespace tensorwire::ibverbs {

template <typename Enum>
[[nodiscard]] inline unsigned raw(const Enum& value) noexcept {
  static_assert(sizeof(Enum) == sizeof(unsigned));
  unsigned number = 0;
  std::memcpy(&number, &value, sizeof number);
  return number;
}

}  // namespace tensorwire::ibverbs
