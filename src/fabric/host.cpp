#include "fabric/host.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace tensorwire::fabric {

using namespace transport;

namespace {

/// Completions are taken as soon as they are there, so few wait at any time.
constexpr std::uint32_t kCompletions = 512;
/// No limit of its own: the windows of the queue pairs and the fabric are what holds a NIC back.
constexpr std::uint64_t kPathWindow = 1ULL << 31;
constexpr std::uint32_t kHostAccess = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead;

}  // namespace

// One path for each priority, so that a paused one can be held back by itself.
Host::Host(HostId id, const HostConfig& host_config, const EngineConfig& engine_config)
    : config(host_config), gid(gid_of(id)), completions(kCompletions, nullptr), engine(engine_config) {
  domain = engine.create_pd();
  key = engine.memory().add({kUserMemory, kUserMemoryBytes, kUserMemory, kHostAccess, 0, domain, &memory}).key;
  engine.set_path_window(kDefaultPath, kPathWindow);
  for (std::size_t priority = 1; priority < kPriorities; ++priority) {
    (void)engine.create_path({.window_bytes = kPathWindow});
  }
  engine.set_cnp_path(priority_of(engine_config.dcqcn.cnp_traffic_class));
}

QueuePair& Host::create_qp(const ConnectionConfig& connection, QpUser* user) {
  QpInit init;
  init.qpn = next_qpn++;
  init.pd = domain;
  init.send_cq = init.recv_cq = &completions;
  init.caps = {connection.send_depth, connection.receive_depth, 2, 0, 0, true};
  init.user = user;
  return engine.create_qp(init);
}

void Host::connect(QueuePair& qp, const ConnectionConfig& connection, const wire::Gid& remote, std::uint32_t remote_qpn,
                   std::uint64_t entropy) {
  QpAttr attr;
  attr.access_flags = kHostAccess;
  attr.has_grh = true;
  attr.av.local = gid;
  attr.av.remote = remote;
  attr.av.traffic_class = connection.traffic_class;
  attr.av.udp_source_port = static_cast<std::uint16_t>(0xc000U | (entropy & 0x3fffU));
  attr.dest_qpn = remote_qpn;
  attr.path_mtu = connection.mtu;
  attr.timeout = connection.timeout;
  attr.retry_cnt = connection.retry_cnt;
  attr.rnr_retry = connection.retry_cnt;
  const auto to = [&](QpState state, std::uint32_t mask) {
    attr.state = state;
    const int error = engine.modify_qp(qp, attr, kAttrState | mask, 0, priority_of(connection.traffic_class));
    if (error != 0) throw system_error(fmt::format("bring up a queue pair to {}", wire::to_string(remote)), error);
  };
  to(QpState::kInit, kAttrPkeyIndex | kAttrPort | kAttrAccessFlags);
  to(QpState::kRtr, kAttrAv | kAttrPathMtu | kAttrDestQpn | kAttrRqPsn | kAttrMaxDestRdAtomic | kAttrMinRnrTimer);
  to(QpState::kRts, kAttrTimeout | kAttrRetryCnt | kAttrRnrRetry | kAttrSqPsn | kAttrMaxQpRdAtomic);
}

}  // namespace tensorwire::fabric
