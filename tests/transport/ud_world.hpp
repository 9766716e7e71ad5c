// UD queue pairs and shared receive queues on the virtual wire: what the tests of both share.
#pragma once

#include "world.hpp"

namespace tensorwire::transport::test {

inline constexpr std::uint32_t kQkey = 0x11223344;
inline constexpr std::size_t kGrh = wire::kNetworkHeaderBytes;

inline constexpr std::uint32_t kUdInitMask = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrQkey;

class UdWorld {
 public:
  /// A queue pair of `type` on `host`, in RESET.
  End create(std::size_t host, QpType type, SharedReceiveQueue* srq = nullptr, QpCaps caps = {64, 64, 4, 4, 256}) {
    Host& on = *world.hosts[host];
    QpInit init;
    init.type = type;
    init.qpn = next_qpn_++;
    init.pd = on.pd;
    init.send_cq = init.recv_cq = &on.cq;
    init.srq = srq;
    init.caps = caps;
    return {&on, &on.engine.create_qp(init)};
  }

  static int modify(const End& end, QpState state, std::uint32_t mask, std::uint32_t qkey = kQkey) {
    QpAttr attr;
    attr.state = state;
    attr.qkey = qkey;
    attr.sq_psn = 0xfffffe;
    return end.host->engine.modify_qp(*end.qp, attr, mask, 0);
  }

  /// A UD queue pair in RTS.
  End datagrams(std::size_t host, std::uint32_t qkey = kQkey, SharedReceiveQueue* srq = nullptr,
                QpCaps caps = {64, 64, 4, 4, 256}) {
    const End end = create(host, QpType::kUd, srq, caps);
    EXPECT_EQ(modify(end, QpState::kInit, kUdInitMask, qkey), 0);
    EXPECT_EQ(modify(end, QpState::kRtr, kAttrState), 0);
    EXPECT_EQ(modify(end, QpState::kRts, kAttrState | kAttrSqPsn), 0);
    return end;
  }

  SharedReceiveQueue& shared(std::size_t host, std::uint32_t max_wr = 16, std::uint32_t max_sge = 4) {
    Host& on = *world.hosts[host];
    return on.engine.create_srq({.pd = on.pd, .max_wr = max_wr, .max_sge = max_sge, .user = nullptr});
  }

  /// Two RC queue pairs, the second on `srq`.
  std::pair<End, End> connect(std::size_t a, std::size_t b, SharedReceiveQueue* srq, const Connection& c = {}) {
    const std::pair<End, End> ends = {create(a, QpType::kRc), create(b, QpType::kRc, srq)};
    World::bring_up(ends.first, ends.second, c);
    World::bring_up(ends.second, ends.first, c);
    return ends;
  }

  static DatagramAddress address_of(const End& from, const End& to, std::uint32_t max_payload = 4096) {
    DatagramAddress address;
    address.av.local = from.host->gid;
    address.av.remote = to.host->gid;
    address.av.udp_source_port = 0xc000;
    address.max_payload = max_payload;
    return address;
  }

  static SendWr datagram(std::uint64_t wr_id, const DatagramAddress& address, const End& to, std::span<const Sge> sges,
                         std::uint32_t qkey = kQkey) {
    SendWr wr = send_wr(wr_id, sges);
    wr.address = &address;
    wr.dest_qpn = to.qp->qpn();
    wr.qkey = qkey;
    return wr;
  }

  World world{3};

 private:
  std::uint32_t next_qpn_ = 0x900;
};

}  // namespace tensorwire::transport::test
