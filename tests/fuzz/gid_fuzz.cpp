// Any text as a GID: what is accepted is written and read back as the same.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "wire/gid.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tensorwire::wire;
  const auto gid = parse_gid({reinterpret_cast<const char*>(data), size});
  if (!gid) return 0;
  if (parse_gid(to_string(*gid)) != gid) std::abort();
  if (gid->is_ipv4() && Gid::from_ipv4(gid->ipv4()) != *gid) std::abort();
  return 0;
}
