#include "verbs/roce_qp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "base/error.hpp"

namespace tensorwire::verbs {

namespace {

constexpr std::uint8_t kMaxDscp = 63;
constexpr std::uint32_t kMaxFlowLabel = (1U << 20) - 1;

constexpr int kInitMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRtsMask =
    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

struct Diagnosis {
  const char* cause;
  const char* remedy;
};

Diagnosis diagnose(int errno_value) noexcept {
  switch (errno_value) {
    case EINVAL:
      return {"the device refuses an attribute, most often a GID index that is not RoCE v2 or a GID of another family",
              "Compare both GIDs and the GID index with show_gids; leave --gid-index out for the automatic choice"};
    case ENODATA:
    case ENXIO:
      return {"the GID index became empty: the interface lost its address",
              "Give the interface its address back and start again"};
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return {"no route or no ARP answer from the peer's address",
              "ping the peer's GID address from this interface; check VLAN and subnet"};
    case ENOMEM:
      return {"the device is out of queue-pair resources", "Use fewer ranks or smaller queues per device"};
    case ENODEV:
    case EIO:
      return {"the device went away", "Look at dmesg for a reset of the device"};
    default:
      return {"the device refused the transition", "Look at dmesg and ibv_devinfo -v"};
  }
}

std::string ends_text(const QueuePair& qp, const QpAddress& remote, const ConnectOptions& options) {
  return fmt::format("local {} QPN {:#08x}, remote {} QPN {:#08x}, {}, DSCP {}", to_string(qp.address().gid), qp.qpn(),
                     to_string(remote.gid), remote.qpn, options.peer.empty() ? "peer unnamed" : options.peer,
                     options.dscp);
}

class Bringup {
 public:
  Bringup(QueuePair& qp, const QpAddress& remote, const ConnectOptions& options)
      : qp_(qp), remote_(remote), options_(options) {}

  void check_arguments() const {
    if (options_.dscp > kMaxDscp) refuse(fmt::format("DSCP {} is not in 0..{}", options_.dscp, kMaxDscp));
    if (options_.hop_limit < kMinHopLimit) {
      refuse(fmt::format("hop limit {} is below {}, a routed fabric could drop the packets", options_.hop_limit,
                         kMinHopLimit));
    }
    if (options_.flow_label > kMaxFlowLabel) refuse("the flow label has more than 20 bits");
    if (remote_.gid.is_zero()) refuse("the peer's GID is empty: its GID index names no address");
    if (remote_.gid.is_ipv4() != qp_.address().gid.is_ipv4()) {
      refuse("one end has an IPv4 GID and the other an IPv6 one: choose the same family on both");
    }
  }

  void to_init() const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.pkey_index = 0;
    attr.port_num = qp_.context()->port();
    attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    modify(attr, kInitMask, "RESET -> INIT");
  }

  void to_rtr() const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = std::min(qp_.address().mtu, remote_.mtu);
    attr.dest_qp_num = remote_.qpn;
    attr.rq_psn = remote_.psn;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = options_.min_rnr_timer;
    attr.ah_attr = route();
    modify(attr, kRtrMask, "INIT -> RTR");
  }

  /// Between RTS and SQD. False: the device refuses.
  [[nodiscard]] bool switch_to(ibv_qp_state state) const {
    ibv_qp_attr attr{};
    attr.qp_state = state;
    return qp_.context()->call().modify_qp(qp_.raw(), &attr, IBV_QP_STATE) == 0;
  }

  [[nodiscard]] bool drained() const {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    const int error = qp_.context()->call().query_qp(qp_.raw(), &attr, IBV_QP_STATE, &init);
    return error == 0 && attr.qp_state == IBV_QPS_SQD && attr.sq_draining == 0;
  }

  [[nodiscard]] bool take_route() const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    attr.ah_attr = route();
    return qp_.context()->call().modify_qp(qp_.raw(), &attr, IBV_QP_STATE | IBV_QP_AV) == 0;
  }

  void to_rts() const {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = qp_.address().psn;
    attr.timeout = options_.timeout;
    attr.retry_cnt = options_.retry_count;
    attr.rnr_retry = options_.rnr_retry;
    attr.max_rd_atomic = 1;
    modify(attr, kRtsMask, "RTR -> RTS");
  }

 private:
  [[nodiscard]] ibv_ah_attr route() const {
    ibv_ah_attr ah{};
    ah.is_global = 1;  // RoCE has no other way: the GRH's fields become the IP header
    std::memcpy(ah.grh.dgid.raw, remote_.gid.bytes.data(), remote_.gid.bytes.size());
    ah.grh.sgid_index = static_cast<std::uint8_t>(qp_.context()->gid_index());
    ah.grh.hop_limit = options_.hop_limit;
    ah.grh.traffic_class = traffic_class_of(options_.dscp);
    ah.grh.flow_label = options_.flow_label;
    ah.port_num = qp_.context()->port();
    return ah;
  }

  void modify(ibv_qp_attr& attr, int mask, const char* step) const {
    const int error = qp_.context()->call().modify_qp(qp_.raw(), &attr, mask);
    if (error == 0) return;
    const int cause = error > 0 ? error : errno;  // a few providers return -1 with errno
    const Diagnosis diagnosis = diagnose(cause);
    throw Error{fmt::format("bring up a queue pair, {} ({}, GID index {} of {})", step,
                            ends_text(qp_, remote_, options_), qp_.context()->gid_index(), qp_.context()->name()),
                fmt::format("{}: likely {}", errno_text(cause), diagnosis.cause), diagnosis.remedy};
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error{fmt::format("bring up a queue pair ({})", ends_text(qp_, remote_, options_)), why};
  }

  QueuePair& qp_;
  const QpAddress& remote_;
  const ConnectOptions& options_;
};

}  // namespace

void transition_qp_to_rts(QueuePair& qp, const QpAddress& remote, const ConnectOptions& options) {
  const Bringup bringup{qp, remote, options};
  bringup.check_arguments();
  bringup.to_init();
  bringup.to_rtr();
  bringup.to_rts();
}

bool reroute_qp(QueuePair& qp, const QpAddress& remote, const ConnectOptions& options, Ps drain_bound) {
  const Bringup bringup{qp, remote, options};
  if (!bringup.switch_to(IBV_QPS_SQD)) return false;
  const Ps until = monotonic_now() + drain_bound;
  while (!bringup.drained() && monotonic_now() < until) nap(100 * kMicrosecond);
  const bool rerouted = bringup.drained() && bringup.take_route();
  return bringup.switch_to(IBV_QPS_RTS) && rerouted;
}

}  // namespace tensorwire::verbs
