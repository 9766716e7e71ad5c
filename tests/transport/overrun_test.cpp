// A completion queue that overruns ends its queue pairs: a completion that is lost leaves nothing to rely upon.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "ud_world.hpp"

namespace tensorwire::transport::test {
namespace {

struct OverrunListener final : CompletionListener {
  int told = 0;
  void on_completion_event(CompletionQueue&) noexcept override {}
  void on_overrun(CompletionQueue&) noexcept override { ++told; }
};

class Overrun : public testing::Test, protected UdWorld {
 protected:
  OverrunListener listener;
  CompletionQueue narrow{2, &listener};
  Host& host = *world.hosts[0];
  const End peer = create(1, QpType::kRc);
  const End other = connect(0, 2, nullptr).first;  // on the host's own queue: no concern of it
  Buffer target = peer.host->buffer(64);

  End create_narrow(std::uint32_t qpn, CompletionQueue* send, CompletionQueue* recv) {
    QpInit init;
    init.qpn = qpn;
    init.pd = host.pd;
    init.send_cq = send;
    init.recv_cq = recv;
    init.caps = {64, 64, 4, 4, 256};
    return {&host, &host.engine.create_qp(init)};
  }
};

TEST_F(Overrun, MovesEveryQueuePairOfTheQueueToError) {
  const End sender = create_narrow(0x50, &narrow, &host.cq);
  const End receiver = create_narrow(0x51, &host.cq, &narrow);
  const End idle = create_narrow(0x52, &narrow, &narrow);
  World::bring_up(sender, peer, {});
  World::bring_up(peer, sender, {});
  World::bring_up(receiver, peer, {});
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(sender.send(write_wr(i, {}, 0, 0)), 0);
  world.settle();

  EXPECT_EQ(listener.told, 1);
  EXPECT_EQ(sender.qp->state(), QpState::kErr);
  EXPECT_EQ(receiver.qp->state(), QpState::kErr);
  EXPECT_EQ(idle.qp->state(), QpState::kReset);
  EXPECT_EQ(other.qp->state(), QpState::kRts);
  const auto fatal = [&](const End& end) {
    return std::ranges::count(host.events.all, std::pair{AsyncEvent::kQpFatal, end.qp->qpn()});
  };
  EXPECT_EQ(fatal(sender), 1);
  EXPECT_EQ(fatal(receiver), 1);
  EXPECT_EQ(fatal(other), 0);

  std::array<Completion, 4> out;
  EXPECT_EQ(narrow.poll(out), 2U);  // what came before is right
  EXPECT_EQ(out[1].wr_id, 1U);
}

TEST_F(Overrun, AlsoByFlushing) {
  const End sender = create_narrow(0x50, &narrow, &host.cq);
  const End bystander = create_narrow(0x51, &host.cq, &narrow);
  World::bring_up(sender, peer, {});
  World::bring_up(bystander, peer, {});
  world.loop.pause(0, true);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(sender.send(write_wr(i, {}, 0, 0)), 0);
  QpAttr attr;
  attr.state = QpState::kErr;
  ASSERT_EQ(host.engine.modify_qp(*sender.qp, attr, kAttrState, 0), 0);
  EXPECT_EQ(bystander.qp->state(), QpState::kErr);
  EXPECT_EQ(host.engine.next_deadline(), kNever);
}

}  // namespace
}  // namespace tensorwire::transport::test
