// Any packets, in any order, mixed with posts, time and transmissions, into an engine with connected queue pairs. What
// the engine says of a packet must stay inside registered memory that the sender has a right to; nothing may crash, no
// completion may be lost count of. The input is a script: a byte that says what happens, then what it needs.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "transport/engine.hpp"
#include "transport/plain_memory.hpp"
#include "transport/queue_pair.hpp"
#include "wire/headers.hpp"

namespace {

using namespace tensorwire;
using namespace tensorwire::transport;

void expect(bool truth) {
  if (!truth) std::abort();
}

/// Bytes of the input; zeros after its end.
class Script {
 public:
  explicit Script(std::span<const std::uint8_t> bytes) : rest_(bytes) {}

  [[nodiscard]] bool over() const { return rest_.empty(); }
  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const std::uint8_t value = rest_.front();
    rest_ = rest_.subspan(1);
    return value;
  }
  std::uint32_t word() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | byte();
    return value;
  }

 private:
  std::span<const std::uint8_t> rest_;
};

constexpr std::size_t kGuard = 4096;
constexpr std::size_t kBytes = 1024;  ///< small, so that a random range often ends near its end
constexpr std::uint32_t kQpns[] = {0x11, 0x12, 0x13};
constexpr std::uint32_t kUnreliableQpn = 0x21;
constexpr std::uint32_t kStartPsn = 0xfffffe;
constexpr std::byte kGuardByte{0xa5};

const wire::Gid kPeer = wire::Gid::from_ipv4(0x0a000002);

/// One host whose peer is the script.
class Host {
 public:
  Host() : memory_(kGuard + kBytes + kGuard, kGuardByte) {
    pd_ = engine_.create_pd();
    for (const std::uint32_t access : {kAccessLocalWrite | kAccessRemote | kAccessWindowBind, std::uint32_t{0}}) {
      keys_.push_back(engine_.memory().add({begin(), kBytes, begin(), access, 0, pd_, &ops_}).key);
    }
    for (const WindowType type : {WindowType::k1, WindowType::k2, WindowType::k2}) {
      windows_.push_back(engine_.memory().add_window(pd_, type));
    }
    for (const std::uint32_t qpn : kQpns) qps_.push_back(&create(qpn, QpType::kRc));
    unreliable_ = &create(kUnreliableQpn, QpType::kUc);
  }

  void play(Script& script) {
    while (!script.over() && ++steps_ < kMaxSteps) step(script);
    for (std::size_t i = 0; i < kGuard; ++i) {
      expect(memory_[i] == kGuardByte && memory_[kGuard + kBytes + i] == kGuardByte);
    }
  }

 private:
  static constexpr int kMaxSteps = 4000;

  [[nodiscard]] std::uint64_t begin() const { return reinterpret_cast<std::uintptr_t>(memory_.data()) + kGuard; }
  [[nodiscard]] bool inside(std::uint64_t address, std::uint64_t length) const {
    return address >= begin() && length <= kBytes && address - begin() <= kBytes - length;
  }

  QueuePair& create(std::uint32_t qpn, QpType type) {
    QpInit init;
    init.type = type;
    init.qpn = qpn;
    init.pd = pd_;
    init.send_cq = init.recv_cq = &cq_;
    init.caps = {8, 8, 2, 2, 64};
    QueuePair& qp = engine_.create_qp(init);
    connect(qp);
    return qp;
  }

  void connect(QueuePair& qp) {
    const bool reliable = qp.init().type == QpType::kRc;
    constexpr std::uint32_t kRtr = kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn;
    constexpr std::uint32_t kRts = kAttrState | kAttrSqPsn;
    constexpr std::uint32_t kReliableRtr = kRtr | kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
    constexpr std::uint32_t kReliableRts = kRts | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrMaxQpRdAtomic;
    QpAttr attr;
    attr.has_grh = true;
    attr.av.local = wire::Gid::from_ipv4(0x0a000001);
    attr.av.remote = kPeer;
    attr.dest_qpn = 0x99;
    attr.path_mtu = MtuCode::k256;
    attr.rq_psn = attr.sq_psn = kStartPsn;
    attr.timeout = 8;
    attr.retry_cnt = attr.rnr_retry = 3;
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 2;
    attr.access_flags = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;
    attr.state = QpState::kInit;
    expect(engine_.modify_qp(qp, attr, kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags, now_) == 0);
    attr.state = QpState::kRtr;
    expect(engine_.modify_qp(qp, attr, reliable ? kReliableRtr : kRtr, now_) == 0);
    attr.state = QpState::kRts;
    expect(engine_.modify_qp(qp, attr, reliable ? kReliableRts : kRts, now_) == 0);
  }

  void step(Script& script) {
    const std::uint8_t what = script.byte();
    QueuePair& qp = *qps_[what % qps_.size()];
    switch (what >> 5) {
      case 0:
      case 1:
      case 2:
        return packet(script, qp);
      case 3:
        return post_receive(script, qp);
      case 4:
        return post_send(script, qp);
      case 5:
        return transmit(script);
      case 6:
        now_ += static_cast<Ps>(script.byte()) * 50 * kMicrosecond;
        engine_.on_timer(now_);
        return;
      default:
        return start_over(script, qp);
    }
  }

  /// Fields are near what the queue pair expects, so that the script comes past the first checks.
  void packet(Script& script, QueuePair& chosen) {
    if (chosen.state() == QpState::kErr && script.byte() < 128) restart(chosen);
    wire::Headers h;
    h.opcode = static_cast<wire::Opcode>(script.byte());
    const QueuePair& qp = wire::service_of(h.opcode) == wire::Service::kUc ? *unreliable_ : chosen;
    const std::uint8_t flags = script.byte();
    const std::uint8_t odd = script.byte();  // each bit an oddity: zero is a packet of good manners
    h.ack_req = (flags & 1) != 0;
    h.solicited = (flags & 2) != 0;
    h.dest_qpn = (odd & 1) != 0 ? script.word() & wire::kQpnMask : qp.qpn();
    if ((odd & 2) != 0) h.pkey = static_cast<std::uint16_t>(script.word());
    h.psn = wire::psn_add(kStartPsn, (odd & 128) != 0 ? script.word() : script.byte() % 16U);
    h.va = begin() + script.byte() * 4U + ((odd & 4) != 0 ? script.word() : 0);
    h.rkey = (odd & 8) != 0 ? script.word() : keys_[(odd >> 4) & 1U];
    h.dma_length = (odd & 32) != 0 ? script.word() : script.byte() * 4U;
    h.immediate = h.qkey = h.src_qpn = script.byte();
    h.invalidate_rkey = any_key(h.immediate);
    if ((flags & 32) != 0) h.rkey = any_key(h.immediate);
    h.syndrome = script.byte();
    h.swap_add = h.compare = h.original = script.byte();
    const std::uint32_t sizes[] = {0, 256, h.dma_length, script.byte()};
    const std::uint32_t bytes = std::min<std::uint32_t>(sizes[(flags >> 2) & 3U], kPayload.size());
    h.pad = static_cast<std::uint8_t>(-bytes & 3U);
    arrive(h, bytes, {(odd & 64) != 0 ? wire::Gid{} : kPeer, 4096, (flags & 16) != 0}, script);
  }

  void arrive(const wire::Headers& h, std::uint32_t bytes, const PacketSource& source, Script& script) {
    const RxVerdict verdict = engine_.classify(h, bytes, source, now_);
    if (verdict.action == RxAction::kDrop) return expect(verdict.drop != DropReason::kNone);
    std::uint64_t placed = 0;
    for (std::size_t i = 0; i < verdict.piece_count; ++i) {
      const Piece& piece = verdict.pieces[i];
      expect(piece.mr != nullptr && inside(piece.address, piece.length));
      placed += piece.length;
    }
    expect(verdict.action != RxAction::kPlace || placed <= bytes);
    if (verdict.action == RxAction::kPlace) {
      std::span<const std::byte> from = std::span{kPayload}.first(bytes);
      for (std::size_t i = 0; i < verdict.piece_count; ++i) {
        expect(ops_.store(verdict.pieces[i].address, from.first(verdict.pieces[i].length), nullptr));
        from = from.subspan(verdict.pieces[i].length);
      }
      if (script.byte() == 255) return engine_.reject(verdict, h, now_);
    }
    engine_.commit(verdict, h, bytes, now_);
  }

  /// A window's, with one of two tags, or a region's.
  [[nodiscard]] std::uint32_t any_key(std::uint32_t choice) const {
    const std::size_t which = choice % (windows_.size() + 1);
    return which == windows_.size() ? keys_[0] : (windows_[which] & ~1U) | ((choice >> 7) & 1U);
  }

  Sge piece_of_memory(Script& script) {
    const std::uint32_t offset = script.byte() * 4U;
    const std::uint32_t length = script.byte() * 4U;
    const std::uint8_t key = script.byte();
    return {begin() + offset, length, key < 250 ? keys_[key & 1U] : key};
  }

  void post_receive(Script& script, QueuePair& chosen) {
    const Sge sges[] = {piece_of_memory(script), piece_of_memory(script)};
    const std::uint8_t flags = script.byte();
    QueuePair& qp = flags >= 128 ? *unreliable_ : chosen;
    if (qp.post_recv({++wr_id_, {sges, flags % 3U}}) == 0) ++posted_;
    if (qp.state() == QpState::kErr) engine_.doorbell(qp, now_);
    poll();
  }

  void post_send(Script& script, QueuePair& chosen) {
    const Sge sges[] = {piece_of_memory(script), piece_of_memory(script)};
    SendWr wr;
    wr.wr_id = ++wr_id_;
    wr.opcode = static_cast<WrOpcode>(script.byte() % 10);
    const std::uint8_t flags = script.byte();
    QueuePair& qp = flags >= 128 ? *unreliable_ : chosen;
    wr.fence = (flags & 1) != 0;
    wr.inline_data = (flags & 2) != 0;
    wr.solicited = (flags & 4) != 0;
    wr.remote_address = begin();
    wr.rkey = wr.opcode >= WrOpcode::kLocalInvalidate ? any_key(flags) : keys_[0];
    wr.sges = {sges, (flags >> 3) % 3U};
    const WindowBinding binding{sges[0].address, sges[0].length, sges[0].lkey, flags & 0xeU};
    wr.binding = &binding;
    if (is_local(wr.opcode)) wr.sges = {};
    if (qp.post_send(wr) == 0) ++posted_;
    engine_.doorbell(qp, now_);
    poll();
  }

  void transmit(Script& script) {
    std::array<TxDesc, 8> out;
    const std::size_t count = engine_.next_tx(now_, 16 * 1024, out);
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t bytes = 0;
      for (std::size_t k = 0; k < out[i].piece_count; ++k) {
        const Piece& piece = out[i].pieces[k];
        expect(piece.mr == nullptr || inside(piece.address, piece.length));
        bytes += piece.length;
      }
      expect(bytes == out[i].payload_bytes);
    }
    if (count != 0) {
      const std::uint8_t fate = script.byte();
      if (fate == 255) engine_.tx_failed(out[0], now_);
      if (fate == 254) engine_.tx_refused(out[0].src_qpn, now_);
    }
    poll();
  }

  void start_over(Script& script, QueuePair& chosen) {
    const std::uint8_t how = script.byte();
    QueuePair& qp = (how & 1) != 0 ? *unreliable_ : chosen;
    if (how < 128) return restart(qp);
    QpAttr attr;
    attr.state = QpState::kErr;
    expect(engine_.modify_qp(qp, attr, kAttrState, now_) == 0);
    poll();
  }

  void restart(QueuePair& qp) {
    QpAttr attr;
    attr.state = QpState::kReset;
    expect(engine_.modify_qp(qp, attr, kAttrState, now_) == 0);
    connect(qp);
    poll();
  }

  /// At most one completion for each request that was posted; none after RESET can be counted on.
  void poll() {
    std::array<Completion, 32> out;
    completed_ += cq_.poll(out);
    expect(completed_ <= posted_);
  }

  static constexpr std::array<std::byte, 4096> kPayload{};

  std::vector<std::byte> memory_;
  PlainMemory ops_;
  CompletionQueue cq_{4096, nullptr};
  Engine engine_{EngineConfig{}};
  PdId pd_ = 0;
  std::vector<std::uint32_t> keys_;
  std::vector<std::uint32_t> windows_;
  std::vector<QueuePair*> qps_;
  QueuePair* unreliable_ = nullptr;
  Ps now_ = 0;
  int steps_ = 0;
  std::uint64_t wr_id_ = 0, posted_ = 0, completed_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Script script({data, size});
  Host().play(script);
  return 0;
}
