// count_packets INTERFACE FILE: counts what really passes an interface by priority, as a NIC does that sorts by its
// port's settings (the file that DCB_PEER names): by DSCP where an application entry has made it trust DSCP, else all
// that has no VLAN tag in priority 0. Runs until it is killed; says "ready" when it counts.
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "counters.hpp"
#include "port.hpp"

namespace {

constexpr int kBufferBytes = 256 << 20;
constexpr std::size_t kHead = 64;

struct Sorting {
  std::array<std::uint8_t, 64> priority_of_dscp{};

  explicit Sorting(const std::string& interface) {
    dcb_peer::Ports ports{std::getenv("DCB_PEER")};
    const dcb_peer::Port* const port = ports.find(interface);
    bool trusts = false;
    for (std::uint8_t dscp = 0; dscp < 64 && port != nullptr; ++dscp) {
      const auto entry = port->apps.find({IEEE_8021QAZ_APP_SEL_DSCP, dscp});
      trusts = trusts || entry != port->apps.end();
      priority_of_dscp[dscp] = entry != port->apps.end() ? entry->second : dscp >> 3;
    }
    if (!trusts) priority_of_dscp.fill(0);
  }
};

int dscp_of(const std::uint8_t* frame, std::size_t length) {
  const bool ipv4 = length >= 16 && frame[12] == 0x08 && frame[13] == 0x00;
  const bool ipv6 = length >= 16 && frame[12] == 0x86 && frame[13] == 0xdd;
  if (ipv4) return frame[15] >> 2;
  return ipv6 ? ((frame[14] & 0xf) << 2) | (frame[15] >> 6) : 0;
}

std::int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

int fail(const char* what) {
  std::perror(what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || std::getenv("DCB_PEER") == nullptr) return 2;
  dcb_peer::Counters* const counters = dcb_peer::map_counters(argv[2], true);
  const int fd = ::socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(argv[1]));
  if (counters == nullptr || fd < 0) return fail(argv[2]);
  if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &kBufferBytes, sizeof kBufferBytes) != 0) return fail("buffer");
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return fail(argv[1]);
  std::puts("ready");
  std::fflush(stdout);
  Sorting sorting{argv[1]};
  for (std::int64_t read_at = now_ms();;) {
    std::uint8_t frame[kHead];
    sockaddr_ll from{};
    socklen_t length = sizeof from;
    const ssize_t size = recvfrom(fd, frame, sizeof frame, MSG_TRUNC, reinterpret_cast<sockaddr*>(&from), &length);
    if (size < 0 && errno == ENETDOWN) return 0;  // the interface is gone
    if (size <= 0) return fail("receive");
    if (now_ms() - read_at > 50) {
      sorting = Sorting{argv[1]};
      read_at = now_ms();
      tpacket_stats statistics{};
      length = sizeof statistics;
      if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &statistics, &length) == 0) {
        counters->missed += statistics.tp_drops;
      }
    }
    const auto bytes = static_cast<std::size_t>(size);
    const int priority = sorting.priority_of_dscp[static_cast<std::size_t>(dscp_of(frame, std::min(bytes, kHead)))];
    auto& side = from.sll_pkttype == PACKET_OUTGOING ? counters->sent : counters->received;
    side[static_cast<std::size_t>(priority)] += bytes;
  }
}
