// One real engine and a peer played by the test, packet by packet: for rules that a well-behaved peer never shows.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "world.hpp"

namespace tensorwire::transport::test {

/// A packet as the test sees it leave, with the bytes of its pieces.
struct Sent {
  wire::Headers headers;
  std::uint32_t bytes = 0;
  bool retransmission = false;
  std::uint32_t src_qpn = 0;
  TxDesc desc;
};

class Lab {
 public:
  static constexpr std::uint32_t kPeerQpn = 0x777;
  static constexpr std::uint32_t kQpn = 0x42;

  explicit Lab(const Connection& c = {}, const EngineConfig& config = {}, PathConfig path_config = {},
               QpCaps caps = {64, 64, 4, 4, 256})
      : connection(c), host(0, config) {
    path = host.engine.create_path(path_config);
    end = {&host, &create(kQpn, caps)};
    bring_up(*end.qp);
  }

  QueuePair& create(std::uint32_t qpn, QpCaps caps = {64, 64, 4, 4, 256}) {
    QpInit init;
    init.type = connection.type;
    init.qpn = qpn;
    init.pd = host.pd;
    init.send_cq = init.recv_cq = &host.cq;
    init.caps = caps;
    return host.engine.create_qp(init);
  }

  void bring_up(QueuePair& qp) {
    QpAttr attr;
    attr.access_flags = connection.access;
    attr.has_grh = true;
    attr.av.local = host.gid;
    attr.av.remote = peer_gid;
    attr.dest_qpn = kPeerQpn;
    attr.path_mtu = connection.mtu;
    attr.rq_psn = attr.sq_psn = connection.psn;
    attr.timeout = connection.timeout;
    attr.retry_cnt = connection.retry_cnt;
    attr.rnr_retry = connection.rnr_retry;
    attr.min_rnr_timer = connection.min_rnr_timer;
    attr.max_rd_atomic = attr.max_dest_rd_atomic = connection.rd_atomic;
    attr.state = QpState::kInit;
    ASSERT_EQ(host.engine.modify_qp(qp, attr, kInitMask, now), 0);
    attr.state = QpState::kRtr;
    ASSERT_EQ(host.engine.modify_qp(qp, attr, rtr_mask(connection), now, path), 0);
    attr.state = QpState::kRts;
    ASSERT_EQ(host.engine.modify_qp(qp, attr, rts_mask(connection), now), 0);
  }

  /// PSN number n of either direction.
  [[nodiscard]] std::uint32_t psn(std::uint32_t n) const { return wire::psn_add(connection.psn, n); }

  std::vector<Sent> pull(std::size_t limit = 1000, std::uint64_t budget = 1ULL << 40) {
    std::vector<Sent> all;
    std::vector<TxDesc> batch(limit);
    while (all.size() < limit && host.engine.has_tx()) {
      const std::size_t n = host.engine.next_tx(now, budget, {batch.data(), limit - all.size()});
      if (n == 0) break;
      for (std::size_t i = 0; i < n; ++i) {
        const TxDesc& d = batch[i];
        all.push_back({d.headers, d.payload_bytes, d.retransmission, d.src_qpn, d});
      }
    }
    return all;
  }

  RxVerdict classify(const wire::Headers& headers, std::uint32_t bytes) {
    return host.engine.classify(headers, bytes, {source, 4096, false}, now);
  }
  /// Gives a packet to the engine; its bytes, if any, are not copied.
  RxVerdict receive(const wire::Headers& headers, std::uint32_t bytes = 0) {
    const RxVerdict verdict = classify(headers, bytes);
    if (verdict.action != RxAction::kDrop) host.engine.commit(verdict, headers, bytes, now);
    return verdict;
  }

  static wire::Headers acknowledge(std::uint8_t syndrome, std::uint32_t psn) {
    wire::Headers h;
    h.opcode = wire::Opcode::kRcAck;
    h.dest_qpn = kQpn;
    h.syndrome = syndrome;
    h.psn = psn;
    return h;
  }
  RxVerdict ack(std::uint32_t n) { return receive(acknowledge(wire::kCreditsInvalid, psn(n))); }
  RxVerdict nak(std::uint32_t n, wire::NakCode code = wire::NakCode::kPsnSequence) {
    return receive(acknowledge(wire::kSyndromeNak | static_cast<std::uint8_t>(code), psn(n)));
  }
  RxVerdict rnr(std::uint32_t n, std::uint8_t timer) {
    return receive(acknowledge(static_cast<std::uint8_t>(wire::kSyndromeRnrNak | timer), psn(n)));
  }

  [[nodiscard]] wire::Headers request(wire::Opcode opcode, std::uint32_t n) const {
    wire::Headers h;
    h.opcode = opcode;
    h.dest_qpn = kQpn;
    h.psn = psn(n);
    h.ack_req = true;
    return h;
  }
  [[nodiscard]] wire::Headers write(wire::Opcode opcode, std::uint32_t n, const Buffer& target,
                                    std::uint32_t length) const {
    wire::Headers h = request(opcode, n);
    h.va = target.address();
    h.rkey = target.key;
    h.dma_length = length;
    return h;
  }

  [[nodiscard]] wire::Headers read(std::uint32_t n, const Buffer& from, std::uint32_t length,
                                   std::size_t offset = 0) const {
    wire::Headers h = write(wire::Opcode::kRcReadRequest, n, from, length);
    h.va += offset;
    return h;
  }
  [[nodiscard]] wire::Headers fetch_add(std::uint32_t n, const Buffer& word, std::uint64_t add) const {
    wire::Headers h = write(wire::Opcode::kRcFetchAdd, n, word, 0);
    h.swap_add = add;
    return h;
  }
  /// A READ response or atomic acknowledge of PSN number n.
  static wire::Headers response(wire::Opcode opcode, std::uint32_t psn) {
    wire::Headers h = acknowledge(wire::kCreditsInvalid, psn);
    h.opcode = opcode;
    return h;
  }

  /// The one control packet that the engine owes; nothing when it owes none.
  std::optional<wire::Headers> answer() {
    const auto all = pull();
    if (all.empty()) return std::nullopt;
    EXPECT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].headers.opcode, wire::Opcode::kRcAck);
    EXPECT_EQ(all[0].headers.dest_qpn, kPeerQpn);
    return all[0].headers;
  }
  void expect_answer(std::uint8_t syndrome, std::uint32_t n) {
    const auto headers = answer();
    ASSERT_TRUE(headers.has_value());
    EXPECT_EQ(headers->syndrome, syndrome);
    EXPECT_EQ(headers->psn, psn(n));
  }
  void expect_ack(std::uint32_t n) { expect_answer(wire::kSyndromeAck | wire::kCreditsInvalid, n); }
  void expect_nak(wire::NakCode code, std::uint32_t n) {
    expect_answer(static_cast<std::uint8_t>(wire::kSyndromeNak | static_cast<std::uint8_t>(code)), n);
  }

  void timer_at(Ps time) {
    now = time;
    host.engine.on_timer(now);
  }

  [[nodiscard]] const EngineCounters& counters() const { return host.engine.counters(); }

  Connection connection;
  Ps now = 0;
  wire::Gid peer_gid = host_gid(1);
  wire::Gid source = peer_gid;
  Host host;
  PathId path = kDefaultPath;
  End end;
};

}  // namespace tensorwire::transport::test
