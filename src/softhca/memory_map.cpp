#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>

#include "softhca/host_memory.hpp"

namespace tensorwire::softhca {

int check_mapped(std::uint64_t address, std::uint64_t length, bool writable) {
  if (length == 0) return 0;
  if (address + length < address) return EFAULT;

  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps{std::fopen("/proc/self/maps", "re"), std::fclose};
  if (!maps) return 0;  // no procfs (a bare chroot): the copies themselves are guarded

  // Lines are sorted by address: walk up from `address` and stop at the first hole or missing right.
  std::uint64_t next = address;
  const std::uint64_t end = address + length;
  char line[512];
  bool at_line_start = true;
  while (next < end && std::fgets(line, sizeof line, maps.get()) != nullptr) {
    const bool is_start = at_line_start;
    at_line_start = std::char_traits<char>::find(line, std::char_traits<char>::length(line), '\n') != nullptr;
    std::uint64_t from = 0, to = 0;
    char rights[5] = {};
    if (!is_start || std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &from, &to, rights) != 3) continue;
    if (to <= next) continue;
    if (from > next || rights[0] != 'r' || (writable && rights[1] != 'w')) return EFAULT;
    next = to;
  }
  return next >= end ? 0 : EFAULT;
}

}  // namespace tensorwire::softhca
