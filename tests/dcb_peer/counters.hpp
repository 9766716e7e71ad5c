// Bytes by priority that an interface sent and received, in a file that count_packets keeps and the peer's answers to
// ETHTOOL_GSTATS read: what a NIC's own counters hold on a real host.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace dcb_peer {

inline constexpr std::size_t kPriorities = 8;

struct Counters {
  std::array<std::atomic<std::uint64_t>, kPriorities> sent, received;
  std::atomic<std::uint64_t> missed;  ///< packets that count_packets did not see in time
};

/// Maps the file, and makes it where `create`. Null where that fails; stays mapped until the process ends.
inline Counters* map_counters(const char* path, bool create) {
  const int fd = ::open(path, create ? O_RDWR | O_CREAT | O_CLOEXEC : O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 || (create && ::ftruncate(fd, sizeof(Counters)) != 0)) return nullptr;
  void* const at = ::mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return at == MAP_FAILED ? nullptr : static_cast<Counters*>(at);
}

}  // namespace dcb_peer
