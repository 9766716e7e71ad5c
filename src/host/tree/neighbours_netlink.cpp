#include "host/tree/neighbours_netlink.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

namespace tensorwire::host {

namespace {

constexpr timeval kNeighbourBound{.tv_sec = 1, .tv_usec = 0};

constexpr std::array kNeighbourStates = {
    std::pair{NUD_INCOMPLETE, std::string_view{"INCOMPLETE"}}, std::pair{NUD_REACHABLE, std::string_view{"REACHABLE"}},
    std::pair{NUD_STALE, std::string_view{"STALE"}},           std::pair{NUD_DELAY, std::string_view{"DELAY"}},
    std::pair{NUD_PROBE, std::string_view{"PROBE"}},           std::pair{NUD_FAILED, std::string_view{"FAILED"}},
    std::pair{NUD_PERMANENT, std::string_view{"PERMANENT"}},
};

int take_neighbour(nl_msg* message, void* to) {
  const nlmsghdr* header = nlmsg_hdr(message);
  if (header->nlmsg_type != RTM_NEWNEIGH || !nlmsg_valid_hdr(header, sizeof(ndmsg))) return NL_SKIP;
  const auto* neighbour = static_cast<const ndmsg*>(nlmsg_data(header));
  nlattr* address = nlmsg_find_attr(const_cast<nlmsghdr*>(header), sizeof(ndmsg), NDA_DST);
  const int expected = neighbour->ndm_family == AF_INET ? 4 : neighbour->ndm_family == AF_INET6 ? 16 : 0;
  char text[INET6_ADDRSTRLEN];
  char interface[IF_NAMESIZE];
  if (address == nullptr || expected == 0 || nla_len(address) != expected ||
      inet_ntop(neighbour->ndm_family, nla_data(address), text, sizeof text) == nullptr ||
      if_indextoname(static_cast<unsigned>(neighbour->ndm_ifindex), interface) == nullptr)
    return NL_SKIP;
  for (const auto& [bit, name] : kNeighbourStates) {
    if ((neighbour->ndm_state & bit) == 0) continue;
    static_cast<Answer*>(to)->text += fmt::format("{} dev {} {}\n", text, interface, name);
    break;
  }
  return NL_OK;
}

}  // namespace

Answer neighbours(const std::string& /*subject*/) {
  Answer answer;
  const std::unique_ptr<nl_sock, decltype(&nl_socket_free)> socket{nl_socket_alloc(), nl_socket_free};
  if (!socket || nl_connect(socket.get(), NETLINK_ROUTE) < 0) return {{}, ENOBUFS};
  ::setsockopt(nl_socket_get_fd(socket.get()), SOL_SOCKET, SO_RCVTIMEO, &kNeighbourBound, sizeof kNeighbourBound);
  nl_socket_modify_cb(socket.get(), NL_CB_VALID, NL_CB_CUSTOM, take_neighbour, &answer);
  ndmsg wanted{};
  if (nl_send_simple(socket.get(), RTM_GETNEIGH, NLM_F_DUMP, &wanted, sizeof wanted) < 0 ||
      nl_recvmsgs_default(socket.get()) < 0)
    return {{}, EIO};
  return answer;
}

}  // namespace tensorwire::host
