// A peer that is somebody else's HCA: it numbers its IP identifications as it likes, which a UDP socket does not show.
// Played by hand over a raw socket.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/random.hpp"
#include "endpoint.hpp"
#include "softhca/hello.hpp"
#include "softhca/own_network.hpp"
#include "softhca/socket_address.hpp"
#include "wire/frame.hpp"

namespace tensorwire::softhca::testing {
namespace {

constexpr std::uint32_t kOurs = 0x7f000002;
constexpr std::uint32_t kTheirs = 0x7f000009;
constexpr std::uint32_t kTheirQpn = 0x000011;  // as an HCA numbers them that knows no slots
constexpr std::uint32_t kTheirPsn = 0xfffffe;

class ForeignHca {
 public:
  explicit ForeignHca(const Address& target) : target_(target) {
    if (!raw_) {
      std::fprintf(stderr, "no raw socket\n");
      ::_exit(kNoNamespace);
    }
  }

  [[nodiscard]] static Address address() { return {.ipv4 = kTheirs, .qpn = kTheirQpn, .psn = kTheirPsn}; }

  /// A WRITE of `bytes` to the target's offset 0, in a packet of IP identification `ip_id`, whose ICRC is xored.
  void write(std::span<const std::byte> bytes, std::uint16_t ip_id, std::uint32_t damage = 0) {
    wire::Headers headers;
    headers.opcode = wire::Opcode::kRcWriteOnly;
    headers.ack_req = true;
    headers.dest_qpn = target_.qpn;
    headers.psn = wire::psn_add(kTheirPsn, next_);
    headers.va = target_.buffer;
    headers.rkey = target_.rkey;
    headers.dma_length = static_cast<std::uint32_t>(bytes.size());
    std::vector<std::byte> datagram(wire::header_bytes(headers.opcode) + bytes.size() + wire::kIcrcBytes);
    const std::size_t stack = wire::encode(headers, datagram);
    std::ranges::copy(bytes, datagram.begin() + static_cast<std::ptrdiff_t>(stack));
    std::uint32_t crc = wire::icrc_begin(flow_, datagram.size(), ip_id);
    crc = wire::icrc_headers(crc, std::span{datagram}.first(stack));
    crc = wire::crc_update(crc, bytes);
    store_le32(&datagram[stack + bytes.size()], wire::icrc_finish(crc) ^ damage);
    send(datagram, ip_id);
  }
  void written() { ++next_; }

  /// What only our own HCAs say.
  void say_hello() {
    const Hello hello{.sender_slot = slot_of(kTheirQpn), .receiver_slot = slot_of(target_.qpn)};
    send(encode_hello(hello, flow_), 0);
  }

 private:
  void send(std::span<const std::byte> datagram, std::uint16_t ip_id) {
    std::vector<std::byte> frame(wire::kMaxFrameHeaderBytes);
    frame.resize(wire::encode_frame_headers({.flow = flow_, .ip_id = ip_id}, datagram,
                                            std::span{frame}.first<wire::kMaxFrameHeaderBytes>()));
    frame.insert(frame.end(), datagram.begin(), datagram.end());
    const auto packet = std::span{frame}.subspan(wire::kEthernetBytes);
    const SocketAddress to{flow_.destination, 0, 0};
    if (::sendto(raw_.get(), packet.data(), packet.size(), 0, to.data(), to.size()) < 0) std::perror("sendto");
  }

  UniqueFd raw_{::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW)};
  Address target_;
  wire::Flow flow_ = wire::ipv4_flow(kTheirs, kOurs, 0xd123, wire::kRoceUdpPort);
  std::uint32_t next_ = 0;
};

/// The bytes have come to the front of the memory.
bool arrives(const Endpoint& end, std::span<const std::byte> bytes, Ps bound = 2 * kSecond) {
  const Ps limit = monotonic_now() + bound;
  std::array<transport::Completion, 1> none;
  while (monotonic_now() < limit) {
    std::ignore = end.cq->poll(none);
    if (std::equal(bytes.begin(), bytes.end(), end.memory.begin())) return true;
  }
  return false;
}

int any_identification() {
  Checks check;
  Endpoint::Settings settings;
  settings.timeout = 0;
  const Endpoint ours{open_at(loopback_device(), kOurs, packets_only()), settings};
  ForeignHca theirs{ours.address()};
  check.that(ours.connect(ForeignHca::address()) == 0, "connected");

  Random random(1);
  std::vector<std::byte> bytes(64);
  const auto fresh = [&] {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  };
  for (const std::uint16_t ip_id : std::to_array<std::uint16_t>({0, 1, 63, 64, 0x98c6, 0xffff, 7})) {
    fresh();
    theirs.write(bytes, ip_id);
    theirs.written();
    check.that(arrives(ours, bytes), ("identification " + std::to_string(ip_id)).c_str());
  }
  check.that(ours.counter("rx_icrc_encapsulated") == 0, "none was wrong");

  fresh();
  theirs.write(bytes, 0x98c6, 1U << 31 | 1);
  check.that(!arrives(ours, bytes, 200 * kMillisecond), "a damaged one is dropped");
  check.that(ours.counter("rx_icrc_encapsulated") == 1, "and counted");

  // One of our own HCAs numbers 0, 1, 2, ...: once an address has proved to be one, 32 bits are checked.
  theirs.say_hello();
  theirs.write(bytes, 0x98c6);
  check.that(!arrives(ours, bytes, 200 * kMillisecond), "no identification but 0 to 63 after a hello");
  check.that(ours.counter("rx_icrc_encapsulated") == 2, "counted too");
  theirs.write(bytes, 63);
  check.that(arrives(ours, bytes), "those are still right");
  return check.result();
}

TEST(ForeignPeer, MayUseAnyIpIdentificationUntilItProvesToBeOurs) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not let a forked child start threads";
  const int result = in_own_network(any_identification);
  if (result == kNoNamespace) GTEST_SKIP() << "network namespaces or raw sockets are forbidden here";
  EXPECT_EQ(result, kPassed) << "see the lines above";
}

}  // namespace
}  // namespace tensorwire::softhca::testing
