// Leases of memory over a bad wire: one side binds a window and tells its key; the other one writes, reads and counts
// through it, and gives it back with SEND with invalidate, or with a plain SEND after which the owner invalidates. Keys
// come again soon, so that an invalidation that happened twice would hit the next lease.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>

#include "world.hpp"

namespace tensorwire::transport::test {
namespace {

constexpr std::size_t kWindows = 4;
constexpr std::uint32_t kSlotBytes = 8192;  ///< of the region, for each window
constexpr std::uint32_t kLeases = 60;

class Leases {
 public:
  Leases(World& world, std::uint64_t seed)
      : world_(world),
        random_(seed),
        mtu_(static_cast<MtuCode>(1 + random_.below(4))),
        ends_(world.connect(0, 1, connection())),
        tenant_(ends_.first),
        owner_(ends_.second),
        inbox_(owner_.host->buffer(kSlotBytes)),
        region_(owner_.host->buffer(kWindows * kSlotBytes, kAccessLocalWrite | kAccessWindowBind)),
        source_(tenant_.host->buffer(kWindows * kSlotBytes)),
        landing_(tenant_.host->buffer(kWindows * kSlotBytes)) {
    fill(source_.bytes, seed + 1);
    for (std::size_t i = 0; i < kWindows; ++i)
      slots_[i].number = window_of(table().add_window(owner_.host->pd, WindowType::k2));
  }

  void run() {
    while (finished_ < kLeases) {
      for (Slot& slot : slots_)
        if (slot.state == State::kFree && begun_ < kLeases && random_.below(3) == 0) bind(slot);
      world_.loop.run_until(world_.loop.now() + static_cast<Ps>(1 + random_.below(20)) * kMicrosecond);
      for (const Completion& done : owner_.poll()) ASSERT_NO_FATAL_FAILURE(on_owner(done));
      for (const Completion& done : tenant_.poll()) ASSERT_NO_FATAL_FAILURE(on_tenant(done));
      ASSERT_LT(world_.loop.now(), 20 * kSecond);
    }
    world_.settle();
    EXPECT_EQ(owner_.qp->state(), QpState::kRts);
    EXPECT_EQ(tenant_.qp->state(), QpState::kRts);
    EXPECT_TRUE(table().remove(region_.key)) << "nothing is bound any more";
  }

 private:
  enum class State : std::uint8_t { kFree, kBinding, kLeased, kInvalidating };
  struct Slot {
    State state = State::kFree;
    std::uint32_t number = 0;
    std::uint32_t key = 0;
    std::size_t offset = 0;
    std::uint32_t length = 0;
    std::uint64_t count = 0;  ///< what the atomic must find
    bool invalidated_by_tenant = false;
  };

  [[nodiscard]] Connection connection() const {
    Connection c;
    c.mtu = mtu_;
    c.timeout = 6;
    return c;
  }
  MemoryTable& table() { return owner_.host->engine.memory(); }
  [[nodiscard]] bool bound(const Slot& slot) {
    return table().can_invalidate(slot.key, owner_.host->pd, owner_.qp->qpn());
  }
  [[nodiscard]] std::size_t index(const Slot& slot) const { return static_cast<std::size_t>(&slot - slots_.data()); }

  void bind(Slot& slot) {
    slot.state = State::kBinding;
    slot.key = slot.number << kWindowTagBits | random_.below(2);
    slot.length = 8 * (1 + random_.below(kSlotBytes / 16));
    slot.offset = index(slot) * kSlotBytes + 8 * random_.below((kSlotBytes - slot.length) / 8 + 1);
    const WindowBinding binding{region_.address(slot.offset), slot.length, region_.key, kAccessRemote};
    SendWr wr;
    wr.wr_id = index(slot);
    wr.opcode = WrOpcode::kBindWindow;
    wr.rkey = slot.key;
    wr.binding = &binding;
    ASSERT_EQ(owner_.receive(begun_++, {inbox_.sge(0, kSlotBytes)}), 0);
    ASSERT_EQ(owner_.send(wr, world_.loop.now()), 0);
  }

  /// The owner has told the key: all at once, fenced where the answer must be in before the window is closed.
  void use(Slot& slot) {
    slot.state = State::kLeased;
    slot.count = region_.word(slot.offset + slot.length - 8);
    const std::uint64_t there = region_.address(slot.offset);
    const std::uint32_t body = slot.length - 8;
    const Sge from = source_.sge(slot.offset, body);
    const Sge back = landing_.sge(slot.offset, body);
    const Sge old = landing_.sge(slot.offset + body, 8);
    const Ps now = world_.loop.now();
    ASSERT_EQ(tenant_.send(write_wr(0, {&from, 1}, there, slot.key), now), 0);
    ASSERT_EQ(tenant_.send(fetch_add_wr(index(slot), {&old, 1}, there + body, slot.key, 1), now), 0);
    ASSERT_EQ(tenant_.send(read_wr(index(slot), {&back, 1}, there, slot.key), now), 0);
    SendWr wr = send_wr(index(slot), {});
    wr.fence = true;
    wr.rkey = slot.key;
    slot.invalidated_by_tenant = random_.below(4) != 0;
    if (slot.invalidated_by_tenant) wr.opcode = WrOpcode::kSendInvalidate;
    // Some are longer than a packet, into the start of the owner's inbox.
    const Sge letter = source_.sge(0, random_.below(2) * random_.below(kSlotBytes));
    wr.sges = {&letter, 1};
    ASSERT_EQ(tenant_.send(wr, now), 0);
    returning_.push_back(index(slot));
  }

  void on_owner(const Completion& done) {
    ASSERT_EQ(done.status, WcStatus::kSuccess);
    if (done.opcode == WcOpcode::kRecv) return on_return(done);
    Slot& slot = slots_[done.wr_id];
    if (done.opcode == WcOpcode::kBindWindow) {
      ASSERT_EQ(slot.state, State::kBinding);
      ASSERT_TRUE(bound(slot));
      return use(slot);
    }
    ASSERT_EQ(done.opcode, WcOpcode::kLocalInvalidate);
    ASSERT_EQ(slot.state, State::kInvalidating);
    end(slot);
  }

  void on_return(const Completion& done) {
    ASSERT_EQ(done.wr_id, returned_++);
    ASSERT_FALSE(returning_.empty());
    Slot& slot = slots_[returning_.front()];
    returning_.pop_front();
    ASSERT_EQ(slot.state, State::kLeased);
    const auto expected = std::span(source_.bytes).subspan(slot.offset, slot.length - 8);
    const auto written = std::span(region_.bytes).subspan(slot.offset, slot.length - 8);
    ASSERT_TRUE(std::ranges::equal(expected, written));
    ASSERT_EQ(region_.word(slot.offset + slot.length - 8), slot.count + 1);
    if (slot.invalidated_by_tenant) {
      ASSERT_EQ(done.flags, kWcWithInvalidate);
      ASSERT_EQ(done.invalidated_key, slot.key);
      return end(slot);
    }
    ASSERT_EQ(done.flags, 0U);
    ASSERT_TRUE(bound(slot));
    slot.state = State::kInvalidating;
    SendWr wr;
    wr.wr_id = index(slot);
    wr.opcode = WrOpcode::kLocalInvalidate;
    wr.rkey = slot.key;
    ASSERT_EQ(owner_.send(wr, world_.loop.now()), 0);
  }

  void end(Slot& slot) {
    ASSERT_FALSE(bound(slot));
    slot.state = State::kFree;
    ++finished_;
  }

  void on_tenant(const Completion& done) {
    ASSERT_EQ(done.status, WcStatus::kSuccess);
    if (done.opcode == WcOpcode::kFetchAdd) {
      const Slot& slot = slots_[done.wr_id];
      ASSERT_EQ(landing_.word(slot.offset + slot.length - 8), slot.count);
    }
  }

  World& world_;
  Random random_;
  MtuCode mtu_;
  std::pair<End, End> ends_;
  End tenant_;
  End owner_;
  Buffer inbox_;  ///< of letters
  Buffer region_;
  Buffer source_;
  Buffer landing_;
  std::array<Slot, kWindows> slots_;
  std::deque<std::size_t> returning_;  ///< slots, in the order of their SENDs
  std::uint32_t begun_ = 0;
  std::uint64_t returned_ = 0;
  std::uint32_t finished_ = 0;
};

TEST(WindowRandom, EachLeaseEndsOnceHoweverBadTheWire) {
  std::uint64_t lost = 0;
  std::uint64_t retransmitted = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    VirtualWire wire;
    wire.seed = seed;
    if (seed % 4 != 0) wire.lose = wire.duplicate = wire.reorder = 30'000;
    if (seed % 4 == 2) wire.corrupt = 20'000;
    World world(2, wire);
    Leases leases(world, seed);
    leases.run();
    if (::testing::Test::HasFatalFailure()) return;
    lost += world.loop.counters().lost;
    for (const auto& host : world.hosts) retransmitted += host->engine.counters().retransmitted_packets;
  }
  EXPECT_GT(lost, 1000U);
  EXPECT_GT(retransmitted, 1000U);
}

}  // namespace
}  // namespace tensorwire::transport::test
