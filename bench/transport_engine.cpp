// What the engine alone costs for a packet: two engines hand each other's headers over, without bytes, CRC or sockets,
// so that everything measured is transport/: posting, segmentation, windows, judging, acknowledging, completing.
//
//   transport_engine                          packets a second, for messages of 64 B, 4 KiB and 256 KiB
//   transport_engine --packets N [BYTES]      exactly so many packets and nothing else, for instruction counts
//                                             (bench/engine_instructions.py)
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <span>

#include "transport/engine.hpp"
#include "transport/plain_memory.hpp"
#include "transport/queue_pair.hpp"

namespace tensorwire::transport {
namespace {

constexpr std::uint64_t kRegion = 0x1000'0000;
constexpr std::uint64_t kRegionBytes = 1ULL << 20;
constexpr std::uint32_t kDepth = 64;
constexpr std::size_t kBatch = 32;

struct Side {
  explicit Side(std::uint32_t number) : gid(wire::Gid::from_ipv4(0x0a000001 + number)) {
    const PdId pd = engine.create_pd();
    const std::uint32_t access = kAccessLocalWrite | kAccessRemoteWrite;
    key = engine.memory().add({kRegion, kRegionBytes, kRegion, access, 0, pd, &memory}).key;
    QpInit init;
    init.qpn = 0x11 + number;
    init.pd = pd;
    init.send_cq = init.recv_cq = &cq;
    init.caps = {kDepth, kDepth, 1, 1, 0};
    qp = &engine.create_qp(init);
  }

  void connect(const Side& peer) {
    QpAttr attr;
    attr.has_grh = true;
    attr.av.local = gid;
    attr.av.remote = peer.gid;
    attr.dest_qpn = peer.qp->qpn();
    attr.path_mtu = MtuCode::k4096;
    attr.timeout = 20;
    attr.retry_cnt = 7;
    attr.access_flags = kAccessRemoteWrite;
    const auto to = [&](QpState state, std::uint32_t mask) {
      attr.state = state;
      if (engine.modify_qp(*qp, attr, kAttrState | mask, 0) != 0) std::abort();
    };
    to(QpState::kInit, kAttrPkeyIndex | kAttrPort | kAttrAccessFlags);
    to(QpState::kRtr, kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic | kAttrMinRnrTimer);
    to(QpState::kRts, kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrSqPsn | kAttrMaxQpRdAtomic);
  }

  wire::Gid gid;
  PlainMemory memory;
  CompletionQueue cq{4 * kDepth, nullptr};
  Engine engine{EngineConfig{}};
  QueuePair* qp = nullptr;
  std::uint32_t key = 0;
};

/// Writes of one size from a to b.
class Stream {
 public:
  explicit Stream(std::uint32_t bytes) : bytes_(bytes) {
    a_.connect(b_);
    b_.connect(a_);
  }

  /// Posts, sends and completes until at least so many data packets have left. @return how many did.
  std::uint64_t run(std::uint64_t packets) {
    const std::uint64_t before = a_.engine.counters().tx_packets;
    while (a_.engine.counters().tx_packets - before < packets) round();
    return a_.engine.counters().tx_packets - before;
  }

 private:
  void round() {
    now_ += kMicrosecond;
    const Sge sge{kRegion, bytes_, a_.key};
    SendWr wr;
    wr.opcode = WrOpcode::kWrite;
    wr.remote_address = kRegion;
    wr.rkey = b_.key;
    wr.sges = {&sge, 1};
    while (posted_ - completed_ < kDepth && a_.qp->post_send(wr) == 0) ++posted_;
    a_.engine.doorbell(*a_.qp, now_);
    hand_over(a_, b_);
    hand_over(b_, a_);
    std::array<Completion, kBatch> done;
    completed_ += a_.cq.poll(done);
  }

  void hand_over(Side& from, Side& to) {
    const std::size_t count = from.engine.next_tx(now_, 256 * 1024, batch_);
    for (const TxDesc& desc : std::span{batch_}.first(count)) {
      const RxVerdict verdict =
          to.engine.classify(desc.headers, desc.payload_bytes, {.address = from.gid, .mtu = 4096}, now_);
      if (verdict.action == RxAction::kDrop) std::abort();
      to.engine.commit(verdict, desc.headers, desc.payload_bytes, now_);
    }
  }

  std::uint32_t bytes_;
  Side a_{0}, b_{1};
  std::array<TxDesc, kBatch> batch_;
  Ps now_ = 0;
  std::uint64_t posted_ = 0, completed_ = 0;
};

void writes(benchmark::State& state) {
  Stream stream(static_cast<std::uint32_t>(state.range(0)));
  std::uint64_t packets = 0;
  for (auto _ : state) packets += stream.run(1000);
  state.SetItemsProcessed(static_cast<std::int64_t>(packets));
}
BENCHMARK(writes)->Arg(64)->Arg(4096)->Arg(256 * 1024);

}  // namespace
}  // namespace tensorwire::transport

int main(int argc, char** argv) {
  if (argc >= 3 && std::strcmp(argv[1], "--packets") == 0) {
    const auto bytes = argc >= 4 ? std::strtoul(argv[3], nullptr, 10) : 4096;
    tensorwire::transport::Stream(static_cast<std::uint32_t>(bytes)).run(std::strtoull(argv[2], nullptr, 10));
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
