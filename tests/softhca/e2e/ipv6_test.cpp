// RoCEv2 over IPv6, on a virtual cable whose two ends are in one network namespace: a link-local address belongs to its
// interface, so packets between the two really cross the cable.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>

#include "base/random.hpp"
#include "endpoint.hpp"
#include "softhca/own_network.hpp"
#include "wire/frame.hpp"
#include "wire/headers.hpp"
#include "wire/pcap.hpp"

namespace tensorwire::softhca::testing {
namespace {

using transport::WcOpcode;
using transport::WcStatus;

constexpr std::uint8_t kLinkLocal = 0;
constexpr std::uint8_t kGlobal = 2;

std::shared_ptr<Hca> open_ipv6(const std::string& interface, HcaOptions options = {}) {
  for (const DeviceInfo& device : list_devices()) {
    if (device.interface == interface) return open_at(device, device.ipv4, std::move(options));
  }
  std::fprintf(stderr, "no device on %s\n", interface.c_str());
  ::_exit(kFailed);
}

void make_cable(int mtu) {
  need("ip link add tw0 type veth peer name tw1");
  for (const char* end : {"0", "1"}) {
    const std::string name = std::string{"tw"} + end;
    need("ip link set " + name + " addrgenmode none mtu " + std::to_string(mtu) + " && ip link set " + name + " up");
    need("ip addr add 10.9." + std::string{end} + ".1/24 dev " + name);
    need("ip addr add fe80::" + std::string{end} + "a/64 dev " + name + " nodad");
    need("ip addr add 2001:db8:" + std::string{end} + "::1/64 dev " + name + " nodad");
  }
}

/// One message from `a` to `b`, through memory that is wiped before.
void exchange(Checks& check, const Endpoint& a, Endpoint& b, std::uint32_t bytes, std::uint32_t seed) {
  Random random(seed);
  std::vector<std::byte> sent(bytes);
  for (std::byte& byte : sent) byte = static_cast<std::byte>(random.next());
  std::ranges::copy(sent, const_cast<Endpoint&>(a).memory.begin());
  std::ranges::fill(b.memory, std::byte{0});
  check.that(b.post_receives(1) == 0 && a.write_imm(b.address(), 0, bytes, seed) == 0, "the write is posted");
  const auto arrived = b.next();
  check.that(arrived && arrived->status == WcStatus::kSuccess && arrived->opcode == WcOpcode::kRecvWithImm &&
                 arrived->byte_len == bytes && arrived->immediate == seed,
             "the write arrives");
  const auto done = a.next();
  check.that(done && done->status == WcStatus::kSuccess, "the write completes");
  check.that(std::equal(sent.begin(), sent.end(), b.memory.begin()), "its bytes are right");
}

int traffic(int mtu, transport::MtuCode path_mtu, std::uint8_t index) {
  make_cable(mtu);
  Checks check;
  Endpoint::Settings settings{.mtu = path_mtu};
  settings.sgid_index = index;
  Endpoint a{open_ipv6("tw0"), settings};
  Endpoint b{open_ipv6("tw1"), settings};
  check.that(a.hca->port().active_mtu == path_mtu, "the port has the MTU of the interface");
  check.that(!a.address().gid.is_ipv4() && !a.address().gid.is_zero(), "the index names an IPv6 address");
  check.that(a.connect(b.address()) == 0 && b.connect(a.address()) == 0, "the two connect");
  check.that(index != kLinkLocal || a.hca->link_description(a.qp).find("another host") != std::string::npos,
             "the other end of the cable is not here");
  std::uint32_t seed = 0;
  for (const std::uint32_t bytes : {0U, 1U, 3U, 64U, 1023U, 1025U, 4095U, 4097U, 65536U, 262144U, 1048576U}) {
    exchange(check, a, b, bytes, ++seed);
    exchange(check, b, a, bytes, ++seed);
  }
  for (const Endpoint* end : {&a, &b}) {
    for (const char* never : {"rx_icrc_encapsulated", "rx_malformed", "tx_errors"}) {
      check.that(end->counter(never) == 0, never);
    }
  }
  return check.result();
}

int families_do_not_mix() {
  make_cable(1500);
  Checks check;
  const Endpoint a{open_ipv6("tw0")};
  Address peer = a.address();
  peer.gid = *wire::parse_gid("fe80::1a");
  check.that(a.to_init() == 0 && a.to_rtr(peer) == EINVAL, "an IPv6 peer from an IPv4 index");
  peer.gid = {};
  check.that(a.to_rtr(peer, kLinkLocal) == EINVAL, "an IPv4 peer from an IPv6 index");
  check.that(a.to_rtr(peer, 9) == ENODATA, "an empty index");
  return check.result();
}

int pairs_of_a_connectx() {
  make_cable(1500);
  Checks check;
  HcaOptions options;
  options.gid_layout = GidLayout::kConnectX;
  const Endpoint a{open_ipv6("tw0", std::move(options))};
  Address peer = a.address();
  peer.gid = *wire::parse_gid("fe80::1a");
  check.that(a.to_init() == 0, "INIT");
  check.that(a.to_rtr(peer, 0) == EINVAL, "index 0 is link-local, RoCE v1");
  check.that(a.to_rtr(peer, 1) == 0, "index 1 is link-local, RoCE v2");
  return check.result();
}

/// Two processes' worth of Hcas at one IPv6 address would be on the same host: the link is found by it too.
int same_host_link_by_ipv6() {
  make_cable(1500);
  Checks check;
  Endpoint::Settings settings;
  settings.sgid_index = kGlobal;
  Endpoint a{open_ipv6("tw0"), settings};
  Endpoint b{open_ipv6("tw1"), settings};
  check.that(a.connect(b.address()) == 0 && b.connect(a.address()) == 0, "the two connect");
  check.that(a.hca->link_description(a.qp) == "same-host link", "global addresses of this host");
  exchange(check, a, b, 100'000, 1);
  exchange(check, b, a, 100, 2);
  return check.result();
}

/// The interface or the route takes less than the packets have: one line, and an error at once instead of retries.
int too_large(const std::string& shrink) {
  make_cable(9000);
  Checks check;
  Endpoint::Settings settings{.timeout = 20, .mtu = transport::MtuCode::k4096};  // retries would take half a minute
  settings.sgid_index = kLinkLocal;
  Endpoint a{open_ipv6("tw0"), settings};
  Endpoint b{open_ipv6("tw1"), settings};
  check.that(a.connect(b.address()) == 0 && b.connect(a.address()) == 0, "the two connect");
  exchange(check, a, b, 262'144, 1);
  need(shrink);
  check.that(a.write_imm(b.address(), 0, 65'536, 7) == 0, "a write is posted");
  check.that(a.write_imm(b.address(), 0, 8, 8) == 0, "and a second one");
  const Ps before = monotonic_now();
  const auto failed = a.next();
  check.that(failed && failed->status == WcStatus::kLocalQpOperationError && failed->wr_id == 7, "the first one fails");
  const auto flushed = a.next();
  check.that(flushed && flushed->status == WcStatus::kFlushError && flushed->wr_id == 8, "the second one is flushed");
  check.that(monotonic_now() - before < 2 * kSecond, "at once");
  check.that(a.hca->state(a.qp) == transport::QpState::kErr, "the queue pair is in error");
  return check.result();
}

int interface_shrinks() { return too_large("ip link set tw0 mtu 1500"); }
int route_shrinks() { return too_large("ip -6 route add fe80::1a/128 dev tw0 mtu 2000"); }

/// What the exclusive use of one label by any socket does to all others: see flow_label_that_is_refused().
void lease_a_label() {
  struct Request {  // in6_flowlabel_req of <linux/in6.h>
    in6_addr destination{};
    std::uint32_t label = htonl(0x00777);
    std::uint8_t action = 0;  // get
    std::uint8_t share = 1;   // exclusive
    std::uint16_t flags = 1;  // create
    std::uint16_t expires = 0, linger = 0;
    std::uint32_t padding = 0;
  } request;
  std::memcpy(&request.destination, wire::parse_gid("fe80::1a")->bytes.data(), sizeof request.destination);
  constexpr int kFlowLabelManager = 32;
  const int fd = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);  // lives as long as this process
  if (::setsockopt(fd, IPPROTO_IPV6, kFlowLabelManager, &request, sizeof request) != 0) ::_exit(kFailed);
}

/// Returns the labels of the RoCEv2 packets that arrive at the second end; the hellos have none.
std::vector<std::uint32_t> labels_on_the_cable(Checks& check, std::uint32_t label) {
  const std::string path = ::testing::TempDir() + "softhca_labels." + std::to_string(::getpid()) + ".pcap";
  {
    HcaOptions options;
    options.capture = std::make_shared<Capture>(path);
    Endpoint::Settings settings;
    settings.mtu = transport::MtuCode::k1024;
    settings.sgid_index = kLinkLocal;
    settings.flow_label = label;
    Endpoint a{open_ipv6("tw0"), settings};
    Endpoint b{open_ipv6("tw1", std::move(options)), settings};
    check.that(a.connect(b.address()) == 0 && b.connect(a.address()) == 0, "the two connect");
    exchange(check, a, b, 10'000, 1);
    check.that(a.counter("tx_errors") == 0 && a.counter("retransmitted_packets") == 0,
               "nothing is refused or sent again");
  }
  std::vector<std::uint32_t> labels;
  for (const wire::PcapRecord& record : wire::read_pcap(path)) {
    const auto frame = wire::parse_frame(record.bytes);
    wire::Parsed parsed;
    if (!frame || wire::parse(frame->udp_payload, parsed) != wire::ParseStatus::kOk) continue;
    if (wire::traits(parsed.headers.opcode).write) labels.push_back(frame->info.flow_label);
  }
  ::unlink(path.c_str());
  check.that(labels.size() >= 10, "all ten packets were captured, some perhaps twice");
  return labels;
}

int flow_label_travels() {
  make_cable(1500);
  Checks check;
  for (const std::uint32_t label : {0x00001U, 0x12345U, 0xfedcbU}) {
    for (const std::uint32_t seen : labels_on_the_cable(check, label)) {
      check.that(seen == label, "the packet has the label of the address vector");
    }
  }
  return check.result();
}

/// Then packets leave without it, after one line.
int flow_label_that_is_refused() {
  make_cable(1500);
  lease_a_label();
  Checks check;
  for (const std::uint32_t seen : labels_on_the_cable(check, 0x12345)) {
    check.that(seen != 0x12345, "the kernel keeps the label back");
  }
  return check.result();
}

struct Ipv6Case {
  const char* name;
  std::function<int()> body;
};

class Ipv6 : public ::testing::TestWithParam<Ipv6Case> {};

TEST_P(Ipv6, OverACable) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not let a forked child start threads";
  const int result = in_own_network(GetParam().body);
  if (result == kNoNamespace) GTEST_SKIP() << "network namespaces are forbidden here, or ip(8) is missing";
  EXPECT_EQ(result, kPassed) << "see the lines above";
}

INSTANTIATE_TEST_SUITE_P(
    , Ipv6,
    ::testing::Values(Ipv6Case{"LinkLocal1500", [] { return traffic(1500, transport::MtuCode::k1024, kLinkLocal); }},
                      Ipv6Case{"LinkLocal9000", [] { return traffic(9000, transport::MtuCode::k4096, kLinkLocal); }},
                      Ipv6Case{"Families", families_do_not_mix}, Ipv6Case{"ConnectX", pairs_of_a_connectx},
                      Ipv6Case{"SameHost", same_host_link_by_ipv6}, Ipv6Case{"InterfaceShrinks", interface_shrinks},
                      Ipv6Case{"RouteShrinks", route_shrinks}, Ipv6Case{"FlowLabel", flow_label_travels},
                      Ipv6Case{"FlowLabelRefused", flow_label_that_is_refused}),
    [](const auto& chosen) { return std::string{chosen.param.name}; });

}  // namespace
}  // namespace tensorwire::softhca::testing
