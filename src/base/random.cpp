#include "base/random.hpp"

#include <sys/random.h>

#include <cerrno>

#include "base/error.hpp"

namespace tensorwire {

std::uint64_t entropy64() {
  std::uint64_t value = 0;
  if (getrandom(&value, sizeof value, 0) != sizeof value) throw system_error("read random bytes", errno);
  return value;
}

}  // namespace tensorwire
