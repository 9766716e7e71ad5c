// What an Hca tells when its interface goes down, comes up, changes its MTU or loses its address.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "endpoint.hpp"
#include "softhca/own_network.hpp"

namespace tensorwire::softhca::testing {
namespace {

using namespace std::chrono_literals;
using Events = std::vector<HcaEvent>;

/// Collects the events of an Hca.
class Listener {
 public:
  explicit Listener(Hca& hca) : hca_(hca) { hca_.add_event_callback({.function = on_event, .user = this}); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { hca_.remove_event_callback(this); }

  /// What came since the last call: waits for the first event, then until it has been quiet for a while.
  Events take() {
    std::unique_lock lock(mutex_);
    came_.wait_for(lock, 5s, [&] { return !events_.empty(); });
    for (std::size_t seen = 0; seen != events_.size();) {
      seen = events_.size();
      came_.wait_for(lock, 50ms, [&] { return events_.size() != seen; });
    }
    return std::exchange(events_, {});
  }
  bool quiet() {
    std::unique_lock lock(mutex_);
    return !came_.wait_for(lock, 50ms, [&] { return !events_.empty(); });
  }
  bool any() {
    const std::lock_guard lock(mutex_);
    return !events_.empty();
  }

 private:
  static void on_event(void* user, HcaEvent event, void*) {
    auto& self = *static_cast<Listener*>(user);
    const std::lock_guard lock(self.mutex_);
    self.events_.push_back(event);
    self.came_.notify_all();
  }

  Hca& hca_;
  std::mutex mutex_;
  std::condition_variable came_;
  Events events_;
};

std::shared_ptr<Hca> open_interface(const std::string& interface) {
  for (const DeviceInfo& device : list_devices()) {
    if (device.interface == interface) return Hca::open(device);
  }
  std::fprintf(stderr, "no device on %s\n", interface.c_str());
  ::_exit(kFailed);
}

bool has_gid(const Hca& hca) {
  return std::ranges::any_of(hca.gid_table(), [](const GidEntry& entry) { return entry.usable; });
}

/// The kernel tells of a carrier when it gets to it, on a busy machine some hundred milliseconds later.
void wait_for_carrier(const std::string& interface) {
  for (int tries = 0; tries < 1000; ++tries) {
    if (read_port(interface).active) return;
    std::this_thread::sleep_for(10ms);
  }
  std::fprintf(stderr, "no carrier on %s\n", interface.c_str());
  ::_exit(kFailed);
}

/// An Hca on one end of a virtual cable, tw0 at 10.9.0.1; the other end is tw1. Without link-local addresses, which
/// come and go with the link and would be told too.
struct CableEnd {
  CableEnd() {
    need("ip link add tw0 type veth peer name tw1 && ip addr add 10.9.0.1/24 dev tw0");
    need("ip link set tw0 addrgenmode none && ip link set tw1 addrgenmode none");
    need("ip link set tw0 up && ip link set tw1 up");
    for (const char* interface : {"tw0", "tw1"}) wait_for_carrier(interface);
    hca = open_interface("tw0");
    listener.emplace(*hca);
  }

  std::shared_ptr<Hca> hca;
  std::optional<Listener> listener;
};

int link_goes_and_comes() {
  CableEnd end;
  Checks check;
  check.that(end.hca->port().active, "the port is active at first");
  check.that(end.listener->quiet(), "nothing is told before something happens");
  for (const char* interface : {"tw0", "tw1"}) {  // ours switched off; carrier lost
    need(std::string{"ip link set "} + interface + " down");
    check.that(end.listener->take() == Events{HcaEvent::kPortError}, "down is told once");
    check.that(!end.hca->port().active, "the port is down");
    check.that(has_gid(*end.hca), "the GID stays");
    need(std::string{"ip link set "} + interface + " up");
    check.that(end.listener->take() == Events{HcaEvent::kPortActive}, "up is told once");
    check.that(end.hca->port().active, "the port is active again");
  }
  need("ip link add other0 type veth peer name other1 && ip link set other0 up && ip addr add 10.8.0.1/24 dev other0");
  check.that(end.listener->quiet(), "other interfaces do not matter");
  return check.result();
}

int mtu_follows() {
  CableEnd end;
  Checks check;
  check.that(end.hca->port().active_mtu == transport::MtuCode::k1024, "1500 gives 1024");
  need("ip link set tw0 mtu 9000");
  check.that(end.hca->port().active_mtu == transport::MtuCode::k4096, "9000 gives 4096");
  check.that(end.listener->quiet(), "another MTU is no event");
  return check.result();
}

int addresses_go_and_come() {
  CableEnd end;
  Checks check;
  need("ip addr add 10.9.1.1/24 dev tw0");
  check.that(end.listener->take() == Events{HcaEvent::kGidChange}, "a second address is told");
  need("ip addr change 10.9.1.1/24 dev tw0 valid_lft 1000 preferred_lft 1000");
  check.that(end.listener->quiet(), "a renewed lease is no change");
  check.that(has_gid(*end.hca), "our address still stands");
  const std::size_t size = end.hca->gid_table().size();

  need("ip addr del 10.9.0.1/24 dev tw0");
  check.that(end.listener->take() == Events{HcaEvent::kGidChange}, "the own address gone is told");
  check.that(!has_gid(*end.hca), "no entry is usable");
  check.that(std::ranges::all_of(end.hca->gid_table(), [](const GidEntry& entry) { return entry.gid.is_zero(); }),
             "every entry is empty");
  check.that(end.hca->gid_table().size() == size, "the table is as long as before");

  need("ip addr add 10.9.0.1/24 dev tw0");
  check.that(end.listener->take() == Events{HcaEvent::kGidChange}, "the address back is told");
  check.that(has_gid(*end.hca), "the entry is back");
  return check.result();
}

int ipv6_comes_and_goes() {
  CableEnd end;
  Checks check;
  check.that(end.hca->gid_table()[0].gid.is_zero(), "index 0 is empty at first");
  need("ip addr add fe80::9/64 dev tw0");
  check.that(end.listener->take() == Events{HcaEvent::kGidChange}, "it is told when it can be bound, not before");
  check.that(end.hca->gid_table()[0].gid == wire::parse_gid("fe80::9"), "the link-local address has index 0");
  need("ip addr add 2001:db8::9/64 dev tw0 nodad");
  check.that(end.listener->take() == Events{HcaEvent::kGidChange}, "a global address is told");
  check.that(end.hca->gid_table()[2].gid == wire::parse_gid("2001:db8::9"), "it stands behind IPv4");
  need("ip addr del fe80::9/64 dev tw0");
  check.that(end.listener->take() == Events{HcaEvent::kGidChange}, "a removal is told");
  check.that(end.hca->gid_table()[0].gid.is_zero() && has_gid(*end.hca), "index 0 is empty again, the others stay");
  return check.result();
}

int interface_is_removed() {
  CableEnd end;
  Checks check;
  need("ip link del tw0");
  const Events events = end.listener->take();
  check.that(std::ranges::count(events, HcaEvent::kPortError) == 1, "the port error is told once");
  check.that(std::ranges::count(events, HcaEvent::kGidChange) >= 1, "the address gone is told");
  check.that(!end.hca->port().active && !has_gid(*end.hca), "port and GID are gone");
  return check.result();
}

int loopback_goes_and_comes() {
  const std::shared_ptr<Hca> hca = open_interface("lo");
  Listener listener(*hca);
  Checks check;
  check.that(hca->port().active && has_gid(*hca), "loopback is active at first");
  need("ip link set lo down");
  check.that(listener.take() == Events{HcaEvent::kPortError}, "loopback down is told");
  need("ip link set lo up");
  check.that(listener.take() == Events{HcaEvent::kPortActive}, "loopback up is told");
  need("ip addr del 127.0.0.1/8 dev lo");
  check.that(listener.take() == Events{HcaEvent::kGidChange}, "its address gone is told");
  check.that(!has_gid(*hca), "its GID is gone");
  return check.result();
}

/// Writes and polls without a pause, so that the engine thread stands by: the links are not its business, this is.
int told_while_the_application_polls() {
  const DeviceInfo device = loopback_device();
  const Endpoint sender(open_at(device, 0x7f000002, packets_only()));
  const Endpoint receiver(open_at(device, 0x7f000003, packets_only()));
  const Address there = receiver.address();
  Listener listener(*sender.hca);
  Checks check;
  check.that(sender.connect(there) == 0 && receiver.connect(sender.address()) == 0, "the two connect");

  need("(sleep 0.3; ip addr add 127.1.0.1/8 dev lo) &");
  const auto limit = std::chrono::steady_clock::now() + 5s;
  std::uint32_t written = 0;
  while (!listener.any() && std::chrono::steady_clock::now() < limit) {
    check.that(sender.write(there, 0, 64, ++written) == 0 && sender.next().has_value(), "a write completes");
  }
  check.that(listener.take() == Events{HcaEvent::kGidChange}, "an address is told to who polls");
  return check.result();
}

struct EventCase {
  const char* name;
  int (*body)();
};

class InterfaceEvents : public ::testing::TestWithParam<EventCase> {};

TEST_P(InterfaceEvents, FollowTheInterface) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not let a forked child start threads";
  const int result = in_own_network(GetParam().body);
  if (result == kNoNamespace) GTEST_SKIP() << "network namespaces are forbidden here, or ip(8) is missing";
  EXPECT_EQ(result, kPassed) << "see the lines above";
}

INSTANTIATE_TEST_SUITE_P(, InterfaceEvents,
                         ::testing::Values(EventCase{"Link", link_goes_and_comes}, EventCase{"Mtu", mtu_follows},
                                           EventCase{"Addresses", addresses_go_and_come},
                                           EventCase{"Ipv6", ipv6_comes_and_goes},
                                           EventCase{"Removal", interface_is_removed},
                                           EventCase{"Loopback", loopback_goes_and_comes},
                                           EventCase{"Polling", told_while_the_application_polls}),
                         [](const auto& chosen) { return std::string{chosen.param.name}; });

}  // namespace
}  // namespace tensorwire::softhca::testing
