#include "host/tree/dcb_netlink.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/dcbnl.h>
#include <linux/rtnetlink.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorwire::host {
namespace {

constexpr timeval kBound{.tv_sec = 1, .tv_usec = 0};

/// What a driver has of it.
struct Dcb {
  std::optional<ieee_pfc> pfc;
  std::optional<ieee_ets> ets;
  std::optional<dcbnl_buffer> buffer;
  std::optional<std::vector<dcb_app>> apps;
  std::optional<std::uint8_t> dcbx;
  int error = ETIMEDOUT;
};

// ---- asking

/// Kernels append members to such structures: an older one sends fewer bytes than we know, a newer one more.
template <class Structure>
std::optional<Structure> structure(nlattr* attribute) {
  if (attribute == nullptr) return std::nullopt;
  Structure value{};
  std::memcpy(&value, nla_data(attribute), std::min(sizeof value, static_cast<std::size_t>(nla_len(attribute))));
  return value;
}

std::optional<std::vector<dcb_app>> app_table(nlattr* table) {
  if (table == nullptr) return std::nullopt;
  std::vector<dcb_app> apps;
  nlattr* entry = nullptr;
  int left = 0;
  nla_for_each_nested(entry, table, left) apps.push_back(*structure<dcb_app>(entry));
  return apps;
}

int take_reply(nl_msg* message, void* to) {
  Dcb& dcb = *static_cast<Dcb*>(to);
  std::array<nlattr*, DCB_ATTR_MAX + 1> all{};
  std::array<nlattr*, DCB_ATTR_IEEE_MAX + 1> ieee{};
  if (nlmsg_parse(nlmsg_hdr(message), sizeof(dcbmsg), all.data(), DCB_ATTR_MAX, nullptr) < 0) return NL_STOP;
  if (all[DCB_ATTR_IEEE] != nullptr) nla_parse_nested(ieee.data(), DCB_ATTR_IEEE_MAX, all[DCB_ATTR_IEEE], nullptr);
  dcb.pfc = structure<ieee_pfc>(ieee[DCB_ATTR_IEEE_PFC]);
  dcb.ets = structure<ieee_ets>(ieee[DCB_ATTR_IEEE_ETS]);
  dcb.buffer = structure<dcbnl_buffer>(ieee[DCB_ATTR_DCB_BUFFER]);
  dcb.apps = app_table(ieee[DCB_ATTR_IEEE_APP_TABLE]);
  dcb.dcbx = structure<std::uint8_t>(all[DCB_ATTR_DCBX]);
  dcb.error = 0;
  return NL_STOP;
}

/// libnl would turn the errno into a code of its own, which several of them share.
int take_error(sockaddr_nl* /*from*/, nlmsgerr* error, void* to) {
  static_cast<Dcb*>(to)->error = -error->error;
  return NL_STOP;
}

using Socket = std::unique_ptr<nl_sock, decltype(&nl_socket_free)>;
using Message = std::unique_ptr<nl_msg, decltype(&nlmsg_free)>;

Dcb ask(const std::string& interface, std::uint8_t command) {
  Dcb dcb;
  const Socket socket{nl_socket_alloc(), nl_socket_free};
  const Message message{nlmsg_alloc_simple(RTM_GETDCB, NLM_F_REQUEST), nlmsg_free};
  if (!socket || !message || nl_connect(socket.get(), NETLINK_ROUTE) < 0) {
    dcb.error = ENOBUFS;
    return dcb;
  }
  ::setsockopt(nl_socket_get_fd(socket.get()), SOL_SOCKET, SO_RCVTIMEO, &kBound, sizeof kBound);
  nl_socket_disable_auto_ack(socket.get());
  nl_socket_modify_cb(socket.get(), NL_CB_VALID, NL_CB_CUSTOM, take_reply, &dcb);
  nl_socket_modify_err_cb(socket.get(), NL_CB_CUSTOM, take_error, &dcb);
  dcbmsg header{.dcb_family = AF_UNSPEC, .cmd = command, .dcb_pad = 0};
  nlmsg_append(message.get(), &header, sizeof header, NLMSG_ALIGNTO);
  nla_put_string(message.get(), DCB_ATTR_IFNAME, interface.c_str());
  if (nl_send_auto(socket.get(), message.get()) >= 0) nl_recvmsgs_default(socket.get());
  return dcb;
}

// ---- telling

constexpr std::string_view tsa_name(std::uint8_t algorithm) {
  switch (algorithm) {
    case IEEE_8021QAZ_TSA_STRICT:
      return "strict";
    case IEEE_8021QAZ_TSA_CB_SHAPER:
      return "cbs";
    case IEEE_8021QAZ_TSA_ETS:
      return "ets";
    case IEEE_8021QAZ_TSA_VENDOR:
      return "vendor";
    default:
      return "unknown";
  }
}

template <class Values>
std::string numbers(const Values& values) {
  return fmt::format("[{}]", fmt::join(values, ","));
}

std::string tsa_names(const std::uint8_t (&algorithms)[IEEE_8021QAZ_MAX_TCS]) {
  std::array<std::string, IEEE_8021QAZ_MAX_TCS> names;
  std::ranges::transform(algorithms, names.begin(),
                         [](std::uint8_t algorithm) { return fmt::format("\"{}\"", tsa_name(algorithm)); });
  return numbers(names);
}

std::string text(const ieee_pfc& pfc) {
  std::array<bool, IEEE_8021QAZ_MAX_TCS> on{};
  for (std::size_t p = 0; p < on.size(); ++p) on[p] = (pfc.pfc_en >> p & 1) != 0;
  return fmt::format(R"({{"pfc_cap":{},"macsec_bypass":{},"delay":{},"prio_pfc":{}}})", pfc.pfc_cap, pfc.mbc != 0,
                     pfc.delay, numbers(on));
}

std::string text(const ieee_ets& ets) {
  return fmt::format(
      R"({{"willing":{},"ets_cap":{},"cbs":{},"tc_bw":{},"pg_bw":{},"tc_tsa":{},"prio_tc":{},"reco_tc_bw":{},"reco_tc_tsa":{},"reco_prio_tc":{}}})",
      ets.willing != 0, ets.ets_cap, ets.cbs != 0, numbers(ets.tc_tx_bw), numbers(ets.tc_rx_bw), tsa_names(ets.tc_tsa),
      numbers(ets.prio_tc), numbers(ets.tc_reco_bw), tsa_names(ets.tc_reco_tsa), numbers(ets.reco_prio_tc));
}

std::string text(const dcbnl_buffer& buffer) {
  return fmt::format(R"({{"prio_buffer":{},"buffer_size":{},"total_size":{}}})", numbers(buffer.prio2buffer),
                     numbers(buffer.buffer_size), buffer.total_size);
}

/// In the order of `dcb`: by kind of selector. A priority for Ethertype 0 is that of everything without an entry.
std::string text(const std::vector<dcb_app>& apps) {
  struct Kind {
    std::string_view name;
    std::uint8_t selector;
  };
  static constexpr Kind kKinds[] = {
      {"ethtype_prio", IEEE_8021QAZ_APP_SEL_ETHERTYPE}, {"default_prio", IEEE_8021QAZ_APP_SEL_ETHERTYPE},
      {"dscp_prio", IEEE_8021QAZ_APP_SEL_DSCP},         {"stream_port_prio", IEEE_8021QAZ_APP_SEL_STREAM},
      {"dgram_port_prio", IEEE_8021QAZ_APP_SEL_DGRAM},  {"port_prio", IEEE_8021QAZ_APP_SEL_ANY}};
  std::vector<std::string> parts;
  for (const Kind& kind : kKinds) {
    const bool defaults = kind.name == "default_prio";
    std::vector<std::string> entries;
    for (const dcb_app& app : apps) {
      const bool is_default = app.selector == IEEE_8021QAZ_APP_SEL_ETHERTYPE && app.protocol == 0;
      if (app.selector != kind.selector || is_default != defaults) continue;
      entries.push_back(defaults ? fmt::to_string(app.priority) : fmt::format("[{},{}]", app.protocol, app.priority));
    }
    if (!entries.empty()) parts.push_back(fmt::format("\"{}\":{}", kind.name, numbers(entries)));
  }
  return fmt::format("{{{}}}", fmt::join(parts, ","));
}

std::string text(std::uint8_t dcbx) {
  static constexpr std::pair<std::string_view, unsigned> kWords[] = {{"host", DCB_CAP_DCBX_HOST},
                                                                     {"lld_managed", DCB_CAP_DCBX_LLD_MANAGED},
                                                                     {"cee", DCB_CAP_DCBX_VER_CEE},
                                                                     {"ieee", DCB_CAP_DCBX_VER_IEEE},
                                                                     {"static", DCB_CAP_DCBX_STATIC}};
  std::vector<std::string> words;
  for (const auto& [word, bit] : kWords) {
    if ((dcbx & bit) != 0) words.push_back(fmt::format("\"{}\":true", word));
  }
  return fmt::format("{{{}}}", fmt::join(words, ","));
}

template <class Part>
Answer tell(const Dcb& dcb, const std::optional<Part>& part) {
  if (dcb.error != 0) return {{}, dcb.error};
  if (!part) return {{}, ENODATA};
  return {text(*part) + "\n", 0};
}

}  // namespace

Answer ask_dcb_pfc(const std::string& interface) {
  const Dcb dcb = ask(interface, DCB_CMD_IEEE_GET);
  return tell(dcb, dcb.pfc);
}

Answer ask_dcb_app(const std::string& interface) {
  const Dcb dcb = ask(interface, DCB_CMD_IEEE_GET);
  return tell(dcb, dcb.apps);
}

Answer ask_dcb_ets(const std::string& interface) {
  const Dcb dcb = ask(interface, DCB_CMD_IEEE_GET);
  return tell(dcb, dcb.ets);
}

Answer ask_dcb_buffer(const std::string& interface) {
  const Dcb dcb = ask(interface, DCB_CMD_IEEE_GET);
  return tell(dcb, dcb.buffer);
}

Answer ask_dcbx(const std::string& interface) {
  const Dcb dcb = ask(interface, DCB_CMD_GDCBX);
  return tell(dcb, dcb.dcbx);
}

}  // namespace tensorwire::host
