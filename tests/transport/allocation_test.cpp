// After set-up nothing allocates: a counting operator new watches two engines exchange messages, lose packets, time
// out, wait for receives, fail and flush.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>

#include "world.hpp"

namespace {

std::atomic<std::uint64_t> allocations{0};

void* counted(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size); memory != nullptr) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Where it does not inline counted(), GCC takes free() for another allocator's.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace tensorwire::transport::test {
namespace {

/// Carries descriptors from one engine to the other without a buffer; every `lose_every`th is lost.
struct Ferry {
  Host& from;
  Host& to;
  std::uint32_t lose_every = 0;
  std::uint32_t count = 0;
  std::array<TxDesc, 16> batch;

  void carry(Ps now) {
    while (from.engine.has_tx()) {
      const std::size_t n = from.engine.next_tx(now, 1 << 16, batch);
      if (n == 0) return;
      for (std::size_t i = 0; i < n; ++i) {
        if (lose_every != 0 && ++count % lose_every == 0) continue;
        const TxDesc& d = batch[i];
        const RxVerdict verdict = to.engine.classify(d.headers, d.payload_bytes, {from.gid, 4096, false}, now);
        if (verdict.action != RxAction::kDrop) to.engine.commit(verdict, d.headers, d.payload_bytes, now);
      }
    }
  }
};

TEST(Allocation, NothingAllocatesAfterSetUp) {
  World world;
  auto [a, b] = world.connect(0, 1);
  Buffer source = a.host->buffer(1 << 20);
  Buffer target = b.host->buffer(1 << 20);
  const std::array sges = {source.sge(0, 100'000)};
  const std::array word = {source.sge(200'000, 8)};
  const std::array receive_sges = {target.sge(0, 1 << 20)};
  Ferry there{*a.host, *b.host, 37, 0, {}};
  Ferry back{*b.host, *a.host, 41, 0, {}};
  std::array<Completion, 64> out;

  const std::uint64_t before = allocations.load();
  Ps now = 0;
  std::uint64_t done = 0;
  for (int round = 0; round < 2000; ++round) {
    SendWr wr = write_imm_wr(1, sges, target.address(), target.key, 7);
    if (round % 3 == 0) wr = send_wr(1, sges);
    if (round % 5 == 0) wr = read_wr(1, sges, target.address(), target.key);
    if (round % 7 == 0) wr = fetch_add_wr(1, word, target.address(), target.key, 1);
    a.qp->post_send(wr);
    a.host->engine.doorbell(*a.qp, now);
    if (round % 16 == 15) b.qp->post_recv({1, receive_sges});
    there.carry(now);
    back.carry(now);
    now += 30 * kMicrosecond;
    a.host->engine.on_timer(now);
    b.host->engine.on_timer(now);
    done += a.host->cq.poll(out);
    b.host->cq.poll(out);
  }
  QpAttr attr;
  attr.state = QpState::kErr;
  a.host->engine.modify_qp(*a.qp, attr, kAttrState, now);
  EXPECT_EQ(allocations.load(), before);
  EXPECT_GT(done, 50U);
  EXPECT_GT(a.host->engine.counters().packet_seq_err, 0U);
  EXPECT_GT(a.host->engine.counters().local_ack_timeout_err, 0U);
  EXPECT_GT(b.host->engine.counters().out_of_buffer, 0U);
  EXPECT_GT(b.host->engine.counters().rx_read_requests, 0U);
  EXPECT_GT(b.host->engine.counters().rx_atomic_requests, 0U);
  EXPECT_GT(a.host->engine.counters().implied_nak_seq_err, 0U);
}

TEST(Allocation, NorDoesAnUnreliableConnection) {
  World world;
  Connection unreliable;
  unreliable.type = QpType::kUc;
  auto [a, b] = world.connect(0, 1, unreliable);
  Buffer source = a.host->buffer(1 << 16);
  Buffer target = b.host->buffer(1 << 16);
  const std::array sges = {source.sge(0, 10'000)};
  const std::array receive_sges = {target.sge(0, 1 << 16)};
  Ferry there{*a.host, *b.host, 37, 0, {}};
  std::array<Completion, 64> out;

  const std::uint64_t before = allocations.load();
  std::uint64_t sent = 0, received = 0;
  for (int round = 0; round < 500; ++round) {
    a.qp->post_send(round % 3 == 0 ? send_wr(1, sges) : write_imm_wr(1, sges, target.address(), target.key, 7));
    a.host->engine.doorbell(*a.qp, round);
    if (round % 16 != 15) b.qp->post_recv({1, receive_sges});
    there.carry(round);
    sent += a.host->cq.poll(out);
    received += b.host->cq.poll(out);
  }
  EXPECT_EQ(allocations.load(), before);
  EXPECT_GT(sent, 400U);
  EXPECT_GT(received, 200U);
  EXPECT_GT(b.host->engine.counters().out_of_sequence, 0U);
}

}  // namespace
}  // namespace tensorwire::transport::test
