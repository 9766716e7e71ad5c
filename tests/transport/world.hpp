// Hosts with engines, memory and queue pairs on a virtual wire: what the transport tests share.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/engine.hpp"
#include "transport/plain_memory.hpp"
#include "transport/queue_pair.hpp"
#include "transport/virtual_loop.hpp"

namespace tensorwire::transport::test {

inline wire::Gid host_gid(std::size_t host) {
  return wire::Gid::from_ipv4(0x0a000001U + static_cast<std::uint32_t>(host));
}

inline constexpr std::uint32_t kEveryAccess =
    kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;

/// Everything that a queue pair needs to reach RTS, with the values tests like to change.
struct Connection {
  MtuCode mtu = MtuCode::k1024;
  std::uint32_t psn = 0xfffff0;  ///< of both directions: wraps soon
  std::uint8_t timeout = 8;      ///< 4.096 us * 2^8 = 1.05 ms
  std::uint8_t retry_cnt = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t min_rnr_timer = 4;  ///< 40 us
  std::uint8_t rd_atomic = 4;      ///< READs and atomics outstanding, both ways
  std::uint32_t access = kEveryAccess;
  QpType type = QpType::kRc;  ///< or UC
};

inline constexpr std::uint32_t kInitMask = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;
inline constexpr std::uint32_t kRtrMask =
    kAttrState | kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
inline constexpr std::uint32_t kRtsMask =
    kAttrState | kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrSqPsn | kAttrMaxQpRdAtomic;

/// What the steps of a connection's type require.
inline std::uint32_t rtr_mask(const Connection& c) {
  return c.type == QpType::kRc ? kRtrMask : kRtrMask & ~(kAttrMaxDestRdAtomic | kAttrMinRnrTimer);
}
inline std::uint32_t rts_mask(const Connection& c) {
  return c.type == QpType::kRc ? kRtsMask : kAttrState | kAttrSqPsn;
}

/// A registered buffer. Its heap memory does not move with it.
struct Buffer {
  std::vector<std::byte> bytes;
  std::uint32_t key = 0;

  [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uintptr_t>(bytes.data()) + offset;
  }
  [[nodiscard]] Sge sge(std::size_t offset, std::size_t length) const {
    return {address(offset), static_cast<std::uint32_t>(length), key};
  }
  /// Eight bytes at `offset` as an atomic sees them.
  [[nodiscard]] std::uint64_t word(std::size_t offset) const {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  }
  void set_word(std::size_t offset, std::uint64_t value) { std::memcpy(bytes.data() + offset, &value, sizeof value); }
};

struct RecordedEvents final : EventListener {
  std::vector<std::pair<AsyncEvent, std::uint32_t>> all;
  void on_async_event(AsyncEvent event, QueuePair& qp) noexcept override { all.emplace_back(event, qp.qpn()); }
  [[nodiscard]] bool has(AsyncEvent event) const {
    for (const auto& [seen, qpn] : all)
      if (seen == event) return true;
    return false;
  }
};

struct Host {
  Host(std::size_t number, const EngineConfig& config) : gid(host_gid(number)), engine(config, &events) {
    pd = engine.create_pd();
  }

  Buffer buffer(std::size_t size, std::uint32_t access = kEveryAccess) {
    Buffer made{std::vector<std::byte>(size), 0};
    made.key = engine.memory().add({made.address(), size, made.address(), access, 0, pd, &memory}).key;
    return made;
  }

  wire::Gid gid;
  RecordedEvents events;
  PlainMemory memory;
  CompletionQueue cq{4096, nullptr};
  Engine engine;
  PdId pd = 0;
};

/// One end of a connection.
struct End {
  Host* host = nullptr;
  QueuePair* qp = nullptr;

  int send(const SendWr& wr, Ps now = 0) const {
    const int result = qp->post_send(wr);
    host->engine.doorbell(*qp, now);
    return result;
  }
  int receive(std::uint64_t wr_id, std::initializer_list<Sge> sges = {}) const {
    return qp->post_recv({wr_id, {sges.begin(), sges.size()}});
  }
  [[nodiscard]] std::vector<Completion> poll() const {
    std::vector<Completion> out(64);
    out.resize(host->cq.poll(out));
    return out;
  }
};

class World {
 public:
  explicit World(std::size_t host_count = 2, const VirtualWire& virtual_wire = {}, EngineConfig config = {},
                 std::uint32_t mtu = 4096)
      : loop(virtual_wire) {
    for (std::size_t i = 0; i < host_count; ++i) {
      config.seed = config.seed * 31 + i;
      hosts.push_back(std::make_unique<Host>(i, config));
      loop.add_host(hosts[i]->engine, host_gid(i), mtu);
    }
  }

  QueuePair& create_qp(Host& host, QpCaps caps = {64, 64, 4, 4, 256}, QpType type = QpType::kRc) {
    QpInit init;
    init.type = type;
    init.qpn = next_qpn_++;
    init.pd = host.pd;
    init.send_cq = init.recv_cq = &host.cq;
    init.caps = caps;
    return host.engine.create_qp(init);
  }

  static QpAttr attributes(const Connection& c, const End& peer) {
    QpAttr attr;
    attr.access_flags = c.access;
    attr.has_grh = true;
    attr.av.remote = peer.host->gid;
    attr.dest_qpn = peer.qp->qpn();
    attr.path_mtu = c.mtu;
    attr.rq_psn = attr.sq_psn = c.psn;
    attr.timeout = c.timeout;
    attr.retry_cnt = c.retry_cnt;
    attr.rnr_retry = c.rnr_retry;
    attr.min_rnr_timer = c.min_rnr_timer;
    attr.max_rd_atomic = attr.max_dest_rd_atomic = c.rd_atomic;
    return attr;
  }

  static void bring_up(const End& end, const End& peer, const Connection& c, PathId path = kDefaultPath) {
    QpAttr attr = attributes(c, peer);
    attr.av.local = end.host->gid;
    attr.state = QpState::kInit;
    ASSERT_EQ(end.host->engine.modify_qp(*end.qp, attr, kInitMask, 0), 0);
    attr.state = QpState::kRtr;
    ASSERT_EQ(end.host->engine.modify_qp(*end.qp, attr, rtr_mask(c), 0, path), 0);
    attr.state = QpState::kRts;
    ASSERT_EQ(end.host->engine.modify_qp(*end.qp, attr, rts_mask(c), 0), 0);
  }

  std::pair<End, End> connect(std::size_t a, std::size_t b, const Connection& c = {}, QpCaps caps = {64, 64, 4, 4, 256},
                              PathId path_a = kDefaultPath, PathId path_b = kDefaultPath) {
    const End end_a{hosts[a].get(), &create_qp(*hosts[a], caps, c.type)};
    const End end_b{hosts[b].get(), &create_qp(*hosts[b], caps, c.type)};
    bring_up(end_a, end_b, c, path_a);
    bring_up(end_b, end_a, c, path_b);
    return {end_a, end_b};
  }

  /// Runs until nothing is left to happen.
  void settle(Ps limit = 60 * kSecond) { ASSERT_TRUE(loop.run_until_idle(loop.now() + limit)); }

  std::vector<std::unique_ptr<Host>> hosts;
  VirtualLoop loop;

 private:
  std::uint32_t next_qpn_ = 0x11;
};

/// Bytes that depend on seed and position.
inline void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  Random random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
}

inline SendWr write_wr(std::uint64_t wr_id, std::span<const Sge> from, std::uint64_t to, std::uint32_t rkey) {
  SendWr wr;
  wr.wr_id = wr_id;
  wr.opcode = WrOpcode::kWrite;
  wr.sges = from;
  wr.remote_address = to;
  wr.rkey = rkey;
  return wr;
}

inline SendWr write_imm_wr(std::uint64_t wr_id, std::span<const Sge> from, std::uint64_t to, std::uint32_t rkey,
                           std::uint32_t immediate) {
  SendWr wr = write_wr(wr_id, from, to, rkey);
  wr.opcode = WrOpcode::kWriteImm;
  wr.immediate = immediate;
  return wr;
}

inline SendWr read_wr(std::uint64_t wr_id, std::span<const Sge> to, std::uint64_t from, std::uint32_t rkey) {
  SendWr wr = write_wr(wr_id, to, from, rkey);
  wr.opcode = WrOpcode::kRead;
  return wr;
}

inline SendWr fetch_add_wr(std::uint64_t wr_id, std::span<const Sge> old_value, std::uint64_t word, std::uint32_t rkey,
                           std::uint64_t add) {
  SendWr wr = write_wr(wr_id, old_value, word, rkey);
  wr.opcode = WrOpcode::kFetchAdd;
  wr.compare_add = add;
  return wr;
}

inline SendWr compare_swap_wr(std::uint64_t wr_id, std::span<const Sge> old_value, std::uint64_t word,
                              std::uint32_t rkey, std::uint64_t compare, std::uint64_t swap) {
  SendWr wr = fetch_add_wr(wr_id, old_value, word, rkey, compare);
  wr.opcode = WrOpcode::kCompareSwap;
  wr.swap = swap;
  return wr;
}

inline SendWr send_wr(std::uint64_t wr_id, std::span<const Sge> from) {
  SendWr wr;
  wr.wr_id = wr_id;
  wr.sges = from;
  return wr;
}

}  // namespace tensorwire::transport::test
