// How a queue pair finds its way: at RTR, and when its address changes in SQD, the local address is looked up in the
// GID table, and the link and path towards the peer are chosen. Datagrams find theirs one by one, and always as
// packets: an address handle is resolved alone. Unreliable connections take packets, too: nothing would say when the
// peer of a same-host link has pulled a message, so that its source may be reused.
#include <cerrno>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "softhca/devices.hpp"
#include "softhca/hca_impl.hpp"
#include "transport/queue_pair.hpp"

namespace tensorwire::softhca {

int HcaImpl::set_link(Qp* qp, LinkChoice choice) {
  if (dead_) return EIO;
  return shard_.locked([&] {
    const transport::QpState state = qp->engine_qp->state();
    if (state != transport::QpState::kReset && state != transport::QpState::kInit) return EINVAL;
    qp->choice = choice;
    return 0;
  });
}

std::string HcaImpl::link_description(const Qp* qp) const {
  return shard_.locked([&] { return qp->link_description; });
}

int HcaImpl::resolve_gid(transport::AddressVector& av) const {
  const std::string index = "GID index " + std::to_string(av.sgid_index) + " of " + device_.name;
  const std::vector<GidEntry> gids = gid_table();
  if (av.sgid_index >= gids.size() || gids[av.sgid_index].gid.is_zero()) {
    log_error(index + " is empty (ENODATA): no address of " + device_.interface +
              " stands there. Choose the RoCE v2 entry of " + wire::ipv4_text(device_.ipv4));
    return ENODATA;
  }
  const GidEntry& entry = gids[av.sgid_index];
  if (!entry.roce_v2) {
    log_error(index + " is a RoCE v1 entry (EINVAL), which is not routable. Choose the RoCE v2 entry of " +
              address_text(entry.gid));
    return EINVAL;
  }
  if (av.remote.is_ipv4() != entry.gid.is_ipv4()) {
    log_error("the remote GID " + wire::to_string(av.remote) + " is not of the family of " + index + ", which is " +
              wire::to_string(entry.gid) + " (EINVAL). Choose IPv4 or IPv6 on both ends");
    return EINVAL;
  }
  av.local = entry.gid;
  return 0;
}

std::string HcaImpl::why_packets(const Qp& qp) const {
  if (qp.engine_qp->init().type == transport::QpType::kUc) return "unreliable connection";
  return qp.choice == LinkChoice::kPackets ? "asked for" : packets_only_;
}

/// Without the lock: the same-host handshake waits for the peer, which may be waiting for us.
HcaImpl::Route HcaImpl::find_route(const Qp& qp, const transport::QpAttr& attr, std::uint32_t mask) {
  Route route{.error = 0, .av = attr.av, .path = std::nullopt, .description = {}};
  route.error = resolve_gid(route.av);
  if (route.error != 0) return route;

  const wire::Gid& local = route.av.local;
  const std::uint32_t dest_qpn = (mask & transport::kAttrDestQpn) != 0 ? attr.dest_qpn : query_qp(&qp).dest_qpn;
  const ProcessAddress peer{.gid = route.av.remote, .slot = slot_of(dest_qpn)};
  std::string why = why_packets(qp);
  if (why.empty()) {
    if (const auto on_host = local_hca_address(peer.gid, device_.interface_index); !on_host) {
      why = "peer is on another host";
    } else if (shard_.local() != nullptr) {
      PathChoice choice = shard_.local()->path_to(local, peer, *on_host);
      route.path = choice.path;
      why = std::move(choice.why_not);
    }
  }
  shard_.locked([&] {
    UdpLink& udp = shard_.udp();
    udp.use_address(local);
    route.av.udp_source_port = udp.source_port_for(local, route.av.flow_label, qp.engine_qp->qpn(), dest_qpn);
    if (!route.path) route.path = udp.path_to(local, peer);
  });
  route.description = why.empty() ? "same-host link" : "RoCEv2 packets (" + why + ")";
  log_info("QP " + std::to_string(qp.engine_qp->qpn()) + " to " + address_text(peer.gid) + ": " + route.description);
  return route;
}

int HcaImpl::modify_qp(Qp* qp, const transport::QpAttr& attr, std::uint32_t mask) {
  if (dead_) return EIO;
  let_out_held();
  transport::QpAttr resolved = attr;
  Route route;
  // Without a GRH there is no GID to look up; the engine says EINVAL.
  if ((mask & transport::kAttrAv) != 0 && attr.has_grh) {
    try {
      route = find_route(*qp, attr, mask);
    } catch (const Error& error) {
      log_error(error.what());
      return EIO;
    }
    if (route.error != 0) return route.error;
    resolved.av = route.av;
  }
  const int error = shard_.locked([&] {
    shard_.udp().read_sources();
    const int refused = shard_.engine().modify_qp(*qp->engine_qp, resolved, mask, monotonic_now(),
                                                  route.path.value_or(transport::kDefaultPath));
    if (refused == 0 && route.path) qp->link_description = std::move(route.description);
    return refused;
  });
  // A move to the error state flushes, a move to RTS may start what was posted: let it out.
  progress_inline(Shard::Depth::kTransmit);
  return error;
}

int HcaImpl::resolve_datagram(transport::DatagramAddress& address) {
  if (dead_) return EIO;
  if (const int error = resolve_gid(address.av); error != 0) return error;
  address.max_payload = transport::mtu_bytes(port().active_mtu);
  try {
    shard_.locked([&] {
      UdpLink& udp = shard_.udp();
      udp.use_address(address.av.local);
      address.av.udp_source_port = udp.source_port_for(address.av.local, address.av.flow_label, 0, 0);
    });
  } catch (const Error& error) {
    log_error(error.what());
    return EIO;
  }
  return 0;
}

}  // namespace tensorwire::softhca
