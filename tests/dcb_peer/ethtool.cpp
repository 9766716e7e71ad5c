// Answers SIOCETHTOOL's questions about statistics for mlx5 ports of the file that DCB_PEER names, under the names that
// mlx5 gives them: bytes by priority, from what count_packets counts (DCB_PEER_COUNTERS names the folder of its files;
// 0 without), and pauses of those priorities that have PFC, which mlx5 shows of no others. All else goes to the kernel.
// Formats: linux/ethtool.h.
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
#include <utility>
#include <vector>

#include "counters.hpp"
#include "port.hpp"

namespace {

using Statistics = std::vector<std::pair<std::string, std::uint64_t>>;

const dcb_peer::Counters* counters_of(const std::string& interface) {
  const char* const folder = std::getenv("DCB_PEER_COUNTERS");
  return folder == nullptr ? nullptr : dcb_peer::map_counters((std::string(folder) + "/" + interface).c_str(), false);
}

/// Empty for what is the kernel's.
Statistics statistics_of(const std::string& interface) {
  const char* const path = std::getenv("DCB_PEER");
  const dcb_peer::Counters* const counters = counters_of(interface);
  if (path == nullptr) return {};
  dcb_peer::Ports ports(path);
  const dcb_peer::Port* const port = ports.find(interface);
  const bool is_mlx5 =
      port != nullptr && (port->driver == dcb_peer::Driver::kMlx5 || port->driver == dcb_peer::Driver::kForgetful);
  if (!is_mlx5 && counters == nullptr) return {};
  Statistics all;
  for (unsigned p = 0; p < dcb_peer::kPriorities; ++p) {
    const std::string priority = "_prio" + std::to_string(p);
    all.emplace_back("tx" + priority + "_bytes", counters != nullptr ? counters->sent[p].load() : 0);
    all.emplace_back("rx" + priority + "_bytes", counters != nullptr ? counters->received[p].load() : 0);
    const bool pauses = is_mlx5 && port->driver != dcb_peer::Driver::kForgetful && (port->pfc.pfc_en >> p & 1) != 0;
    if (pauses) all.emplace_back("rx" + priority + "_pause", 0);
    if (pauses) all.emplace_back("tx" + priority + "_pause", 0);
  }
  return all;
}

void count(char* data, const Statistics& all) {
  ethtool_sset_info head;
  std::memcpy(&head, data, sizeof head);
  head.sset_mask = std::uint64_t{1} << ETH_SS_STATS;
  std::memcpy(data, &head, sizeof head);
  const auto size = static_cast<std::uint32_t>(all.size());
  std::memcpy(data + sizeof head, &size, sizeof size);
}

void name(char* data, const Statistics& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    char* const at = data + sizeof(ethtool_gstrings) + i * ETH_GSTRING_LEN;
    std::snprintf(at, ETH_GSTRING_LEN, "%s", all[i].first.c_str());
  }
}

void value(char* data, const Statistics& all) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::memcpy(data + sizeof(ethtool_stats) + i * sizeof all[i].second, &all[i].second, sizeof all[i].second);
  }
}

bool answer(const ifreq& request) {
  std::uint32_t command = 0;
  std::memcpy(&command, request.ifr_data, sizeof command);
  if (command != ETHTOOL_GSSET_INFO && command != ETHTOOL_GSTRINGS && command != ETHTOOL_GSTATS) return false;
  const Statistics all = statistics_of(request.ifr_name);
  if (all.empty()) return false;
  if (command == ETHTOOL_GSSET_INFO) count(request.ifr_data, all);
  if (command == ETHTOOL_GSTRINGS) name(request.ifr_data, all);
  if (command == ETHTOOL_GSTATS) value(request.ifr_data, all);
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
