// Answers SIOCETHTOOL's questions about statistics for interfaces that count_packets counts (DCB_PEER_COUNTERS names
// the folder of its files), under the names that mlx5 gives them; all else goes to the kernel. Formats:
// linux/ethtool.h.
#include <dlfcn.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "counters.hpp"

namespace {

constexpr std::uint32_t kStatistics = 2 * dcb_peer::kPriorities;

const dcb_peer::Counters* counters_of(const char* interface) {
  const char* const folder = std::getenv("DCB_PEER_COUNTERS");
  return folder == nullptr ? nullptr : dcb_peer::map_counters((std::string(folder) + "/" + interface).c_str(), false);
}

void count(char* data) {
  ethtool_sset_info head;
  std::memcpy(&head, data, sizeof head);
  head.sset_mask = std::uint64_t{1} << ETH_SS_STATS;
  std::memcpy(data, &head, sizeof head);
  std::memcpy(data + sizeof head, &kStatistics, sizeof kStatistics);
}

void name(char* data) {
  for (std::uint32_t i = 0; i < kStatistics; ++i) {
    char* const at = data + sizeof(ethtool_gstrings) + std::size_t{i} * ETH_GSTRING_LEN;
    std::snprintf(at, ETH_GSTRING_LEN, "%s_prio%u_bytes", i % 2 == 0 ? "tx" : "rx", i / 2);
  }
}

void value(char* data, const dcb_peer::Counters& counters) {
  for (std::uint32_t i = 0; i < kStatistics; ++i) {
    const std::uint64_t bytes = (i % 2 == 0 ? counters.sent : counters.received)[i / 2].load();
    std::memcpy(data + sizeof(ethtool_stats) + std::size_t{i} * sizeof bytes, &bytes, sizeof bytes);
  }
}

bool answer(const ifreq& request) {
  std::uint32_t command = 0;
  std::memcpy(&command, request.ifr_data, sizeof command);
  if (command != ETHTOOL_GSSET_INFO && command != ETHTOOL_GSTRINGS && command != ETHTOOL_GSTATS) return false;
  const dcb_peer::Counters* const counters = counters_of(request.ifr_name);
  if (counters == nullptr) return false;
  if (command == ETHTOOL_GSSET_INFO) count(request.ifr_data);
  if (command == ETHTOOL_GSTRINGS) name(request.ifr_data);
  if (command == ETHTOOL_GSTATS) value(request.ifr_data, *counters);
  return true;
}

}  // namespace

extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (request == SIOCETHTOOL && answer(*static_cast<const ifreq*>(argument))) return 0;
  using Ioctl = int(int, unsigned long, void*);
  static const auto real = reinterpret_cast<Ioctl*>(dlsym(RTLD_NEXT, "ioctl"));
  return real(fd, request, argument);
}
