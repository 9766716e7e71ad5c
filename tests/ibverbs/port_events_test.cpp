// The port goes down under a program that has the device open.
#include <poll.h>

#include "ibverbs/verbs_fixture.hpp"
#include "softhca/own_network.hpp"

namespace tensorwire::ibverbs::test {
namespace {

using softhca::testing::Checks;
using softhca::testing::need;

/// ThreadSanitizer does not let a forked child start threads.
#ifdef TENSORWIRE_TSAN
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

/// The next event within five seconds, acknowledged, is `type` of port 1.
bool next_event_is(ibv_context* context, ibv_event_type type) {
  pollfd descriptor{.fd = context->async_fd, .events = POLLIN, .revents = 0};
  ibv_async_event event{};
  if (::poll(&descriptor, 1, 5000) != 1 || ibv_get_async_event(context, &event) != 0) return false;
  ibv_ack_async_event(&event);
  return event.event_type == type && event.element.port_num == 1;
}

ibv_port_state port_state(ibv_context* context) {
  ibv_port_attr port{};
  return ibv_query_port(context, 1, &port) == 0 ? port.state : IBV_PORT_NOP;
}

int loopback_goes_and_comes() {
  const Owned<ibv_context> context = open_first_device();
  const std::uint8_t index = usable_gid_index(context.get());
  ibv_gid_entry entry{};
  Checks check;
  check.that(port_state(context.get()) == IBV_PORT_ACTIVE, "the port is active at first");
  need("ip link set lo down");
  check.that(next_event_is(context.get(), IBV_EVENT_PORT_ERR), "the port error is told");
  check.that(port_state(context.get()) == IBV_PORT_DOWN, "the port is down");
  need("ip link set lo up");
  check.that(next_event_is(context.get(), IBV_EVENT_PORT_ACTIVE), "the port active again is told");
  check.that(port_state(context.get()) == IBV_PORT_ACTIVE, "the port is active again");
  check.that(ibv_query_gid_ex(context.get(), 1, index, &entry, 0) == 0, "the GID stands");
  need("ip addr del 127.0.0.1/8 dev lo");
  check.that(next_event_is(context.get(), IBV_EVENT_GID_CHANGE), "the GID change is told");
  check.that(ibv_query_gid_ex(context.get(), 1, index, &entry, 0) == ENODATA, "the GID is gone");
  return check.result();
}

TEST(PortEvents, FollowTheInterface) {
  if (kThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer does not let a forked child start threads";
  const int result = softhca::testing::in_own_network(loopback_goes_and_comes);
  if (result == softhca::testing::kNoNamespace) {
    GTEST_SKIP() << "network namespaces are forbidden here, or ip(8) is missing";
  }
  EXPECT_EQ(result, softhca::testing::kPassed) << "see the lines above";
}

}  // namespace
}  // namespace tensorwire::ibverbs::test
