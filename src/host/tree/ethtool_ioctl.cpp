#include "host/tree/ethtool_ioctl.hpp"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

namespace tensorwire::host {

namespace {

constexpr std::uint32_t kMostStatistics = 65'536;

/// One ethtool request. @return errno, or 0.
int ask_driver(const std::string& interface, void* request) {
  if (interface.size() >= IFNAMSIZ) return ENODEV;
  const int socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket_fd < 0) return errno;
  ifreq wanted{};
  std::memcpy(wanted.ifr_name, interface.c_str(), interface.size() + 1);
  wanted.ifr_data = static_cast<char*>(request);
  const int error = ioctl(socket_fd, SIOCETHTOOL, &wanted) < 0 ? errno : 0;
  close(socket_fd);
  return error;
}

/// How many statistics the driver has. @return errno, or 0.
int count_statistics(const std::string& interface, std::uint32_t& count) {
  // The answer, one number for each bit of the mask, follows the request.
  std::array<std::uint32_t, sizeof(ethtool_sset_info) / 4 + 1> words{};
  ethtool_sset_info request{};
  request.cmd = ETHTOOL_GSSET_INFO;
  request.sset_mask = std::uint64_t{1} << ETH_SS_STATS;
  std::memcpy(words.data(), &request, sizeof request);
  const int error = ask_driver(interface, words.data());
  std::memcpy(&request, words.data(), sizeof request);
  count = error == 0 && request.sset_mask != 0 ? std::min(words.back(), kMostStatistics) : 0;
  return error;
}

}  // namespace

Answer ethtool_statistics(const std::string& interface) {
  std::uint32_t count = 0;
  if (const int error = count_statistics(interface, count); error != 0) return {{}, error};
  if (count == 0) return {{}, EOPNOTSUPP};
  std::vector<std::uint8_t> names(sizeof(ethtool_gstrings) + std::size_t{count} * ETH_GSTRING_LEN);
  const ethtool_gstrings ask_names{ETHTOOL_GSTRINGS, ETH_SS_STATS, count};
  std::memcpy(names.data(), &ask_names, sizeof ask_names);
  if (const int error = ask_driver(interface, names.data()); error != 0) return {{}, error};
  // One word more than asked for: the request's head is 8 bytes.
  std::vector<std::uint64_t> values(std::size_t{count} + 1);
  const ethtool_stats ask_values{ETHTOOL_GSTATS, count};
  std::memcpy(values.data(), &ask_values, sizeof ask_values);
  if (const int error = ask_driver(interface, values.data()); error != 0) return {{}, error};
  Answer answer{"NIC statistics:\n", 0};
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto* name =
        reinterpret_cast<const char*>(names.data() + sizeof(ethtool_gstrings)) + std::size_t{i} * ETH_GSTRING_LEN;
    answer.text.append("     ").append(name, strnlen(name, ETH_GSTRING_LEN)).append(": ");
    answer.text.append(std::to_string(values[i + 1])).append("\n");
  }
  return answer;
}

Answer ethtool_pause(const std::string& interface) {
  ethtool_pauseparam request{};
  request.cmd = ETHTOOL_GPAUSEPARAM;
  if (const int error = ask_driver(interface, &request); error != 0) return {{}, error};
  const auto word = [](std::uint32_t value) { return value != 0 ? "on\n" : "off\n"; };
  return {"Pause parameters for " + interface + ":\nAutonegotiate:\t" + word(request.autoneg) + "RX:\t\t" +
              word(request.rx_pause) + "TX:\t\t" + word(request.tx_pause),
          0};
}

}  // namespace tensorwire::host
