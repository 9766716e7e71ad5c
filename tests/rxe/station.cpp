#include "station.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>

namespace tensorwire::rxe {

namespace {

constexpr std::uint8_t kPort = 1;
constexpr std::uint8_t kInfiniteRnrRetry = 7;
constexpr std::uint8_t kRetries = 7;
/// The soft HCA gives up after kRetries timeouts, as it should; the emulated machine may be off the CPU for longer than
/// so many short ones. rxe never gives up when kRetries is 7.
constexpr std::uint8_t kSoftTimeout = 15;
constexpr std::uint8_t kRnrTimer = 12;  // 0.64 ms
constexpr int kStallMs = 20'000;
constexpr std::uint32_t kMaxReadDepth = 4;
constexpr std::uint32_t kInlineBytes = 64;

/// A little below the wrap of 24 bits, so that every session passes it.
constexpr std::uint32_t kFirstPsn = 0xff'ff00;

[[noreturn]] void fail(const std::string& what, int error) {
  throw std::runtime_error{what + ": " + std::strerror(error)};
}

template <typename Object>
Object* made(Object* object, const char* what) {
  if (object == nullptr) fail(what, errno);
  return object;
}

void must(int result, const char* what) {
  if (result != 0) fail(what, result > 0 ? result : errno);
}

/// The index of `gid` as a RoCE v2 entry, or -1.
int index_of(ibv_context* context, const ibv_gid& gid) {
  ibv_port_attr port{};
  if (ibv_query_port(context, kPort, &port) != 0) return -1;
  for (int index = 0; index < port.gid_tbl_len; ++index) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(context, kPort, static_cast<std::uint32_t>(index), &entry, 0) != 0) continue;
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && std::memcmp(&entry.gid, &gid, sizeof gid) == 0) return index;
  }
  return -1;
}

ibv_gid mapped(std::uint32_t ipv4) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(&gid.raw[12], &ipv4, sizeof ipv4);
  return gid;
}

Owned<ibv_context, ibv_close_device> open_device_with(const ibv_gid& gid, int& gid_index) {
  int count = 0;
  const Owned<ibv_device*, ibv_free_device_list> devices{made(ibv_get_device_list(&count), "list the devices")};
  for (int i = 0; i < count; ++i) {
    Owned<ibv_context, ibv_close_device> context{ibv_open_device(devices.get()[i])};
    if (!context) continue;
    gid_index = index_of(context.get(), gid);
    if (gid_index >= 0) return context;
  }
  throw std::runtime_error{"none of " + std::to_string(count) + " devices has the address of the control connection"};
}

ibv_mtu mtu_code(std::uint32_t bytes) {
  return static_cast<ibv_mtu>(bytes == 4096   ? IBV_MTU_4096
                              : bytes == 2048 ? IBV_MTU_2048
                              : bytes == 1024 ? IBV_MTU_1024
                              : bytes == 512  ? IBV_MTU_512
                                              : IBV_MTU_256);
}

}  // namespace

Memory::Memory(ibv_pd* pd, std::vector<std::byte> bytes, int access)
    : bytes_(std::move(bytes)), mr_(made(ibv_reg_mr(pd, bytes_.data(), bytes_.size(), access), "register memory")) {}

Station::Station(std::uint32_t ipv4, ibv_qp_type type, bool ipv6)
    : context_(open_device_with(mapped(ipv4), gid_index_)),
      gid_(mapped(ipv4)),
      pd_(made(ibv_alloc_pd(context_.get()), "allocate a protection domain")),
      channel_(made(ibv_create_comp_channel(context_.get()), "create a completion channel")),
      cq_(made(ibv_create_cq(context_.get(), 4 * kQueueDepth, nullptr, channel_.get(), 0),
               "create a completion queue")),
      psn_(kFirstPsn) {
  if (ipv6) choose_unique_local_gid();
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_.get();
  init.cap = {.max_send_wr = kQueueDepth,
              .max_recv_wr = kQueueDepth,
              .max_send_sge = kMaxSge,
              .max_recv_sge = 1,
              .max_inline_data = kInlineBytes};
  init.qp_type = type;
  qp_.reset(made(ibv_create_qp(pd_.get(), &init), "create a queue pair"));
  reset_to_init(type);
}

/// RFC 4193: fd00::/8.
void Station::choose_unique_local_gid() {
  for (int index = 0;; ++index) {
    if (ibv_query_gid(context_.get(), kPort, index, &gid_) != 0) {
      throw std::runtime_error{"the device has no GID of a unique local IPv6 address"};
    }
    if (gid_.raw[0] != 0xfd || index_of(context_.get(), gid_) < 0) continue;
    gid_index_ = index_of(context_.get(), gid_);
    return;
  }
}

void Station::reset_to_init(ibv_qp_type type) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = kPort;
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (type == IBV_QPT_UD) {
    attr.qkey = kQkey;
    mask |= IBV_QP_QKEY;
  } else {
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (type == IBV_QPT_RC) attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    mask |= IBV_QP_ACCESS_FLAGS;
  }
  must(ibv_modify_qp(qp_.get(), &attr, mask), "bring the queue pair to INIT");
}

Address Station::address() const {
  ibv_port_attr port{};
  must(ibv_query_port(context_.get(), kPort, &port), "query the port");
  ibv_device_attr device{};
  must(ibv_query_device(context_.get(), &device), "query the device");
  Address address;
  address.gid = gid_;
  address.qpn = qp_->qp_num;
  address.psn = psn_;
  address.max_mtu = port.active_mtu;
  address.read_depth = std::min(kMaxReadDepth, static_cast<std::uint32_t>(device.max_qp_rd_atom));
  return address;
}

ibv_ah_attr Station::route_to(const ibv_gid& gid) const noexcept {
  ibv_ah_attr route{};
  route.is_global = 1;
  route.port_num = kPort;
  route.grh.dgid = gid;
  route.grh.sgid_index = static_cast<std::uint8_t>(gid_index_);
  route.grh.hop_limit = 64;
  return route;
}

void Station::connect(const Address& peer, std::uint32_t path_mtu, std::uint8_t ack_timeout) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  if (qp_->qp_type == IBV_QPT_UD) {
    must(ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE), "bring the queue pair to RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = psn_;
    must(ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "bring the queue pair to RTS");
    ibv_ah_attr route = route_to(peer.gid);
    ah_.reset(made(ibv_create_ah(pd_.get(), &route), "create an address handle"));
    return;
  }
  const bool reliable = qp_->qp_type == IBV_QPT_RC;
  const std::uint32_t read_depth = std::min(peer.read_depth, address().read_depth);
  attr.path_mtu = mtu_code(path_mtu);
  if (static_cast<std::uint32_t>(attr.path_mtu) > std::min(peer.max_mtu, address().max_mtu)) {
    throw std::runtime_error{"the interface is too small for a path MTU of " + std::to_string(path_mtu)};
  }
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = peer.psn;
  attr.max_dest_rd_atomic = static_cast<std::uint8_t>(read_depth);
  attr.min_rnr_timer = kRnrTimer;
  attr.ah_attr = route_to(peer.gid);
  int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (reliable) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  must(ibv_modify_qp(qp_.get(), &attr, mask), "bring the queue pair to RTR");
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = on_soft_hca() ? std::max(ack_timeout, kSoftTimeout) : ack_timeout;
  attr.retry_cnt = kRetries;
  attr.rnr_retry = kInfiniteRnrRetry;
  attr.sq_psn = psn_;
  attr.max_rd_atomic = static_cast<std::uint8_t>(read_depth);
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (reliable) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  must(ibv_modify_qp(qp_.get(), &attr, mask), "bring the queue pair to RTS");
}

void Station::post_send(std::span<ibv_send_wr> wrs) {
  for (std::size_t i = 0; i + 1 < wrs.size(); ++i) wrs[i].next = &wrs[i + 1];
  ibv_send_wr* bad = nullptr;
  must(ibv_post_send(qp_.get(), wrs.data(), &bad), "post a send");
}

void Station::post_receive(std::uint64_t wr_id, std::optional<ibv_sge> sge) {
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  if (sge) {
    wr.sg_list = &*sge;
    wr.num_sge = 1;
  }
  ibv_recv_wr* bad = nullptr;
  must(ibv_post_recv(qp_.get(), &wr, &bad), "post a receive");
}

std::optional<ibv_wc> Station::next_completion(int bound_ms) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds{bound_ms};
  bool armed = false;
  for (;;) {
    ibv_wc wc{};
    const int polled = ibv_poll_cq(cq_.get(), 1, &wc);
    if (polled < 0) fail("poll the completion queue", EIO);
    if (polled == 1) return wc;
    if (!armed) {  // and look again: what came before the arming raises no event
      must(ibv_req_notify_cq(cq_.get(), 0), "arm the completion queue");
      armed = true;
      continue;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd event{.fd = channel_->fd, .events = POLLIN, .revents = 0};
    if (left <= 0 || ::poll(&event, 1, static_cast<int>(left)) <= 0) return std::nullopt;
    ibv_cq* cq = nullptr;
    void* cookie = nullptr;
    must(ibv_get_cq_event(channel_.get(), &cq, &cookie), "take a completion event");
    ibv_ack_cq_events(cq, 1);
    armed = false;
  }
}

ibv_wc Station::next_success() {
  const std::optional<ibv_wc> wc = next_completion(kStallMs);
  if (!wc) throw std::runtime_error{"nothing completed for " + std::to_string(kStallMs / 1000) + " s"};
  if (wc->status != IBV_WC_SUCCESS) {
    throw std::runtime_error{std::string{"a work request failed: "} + ibv_wc_status_str(wc->status)};
  }
  return *wc;
}

}  // namespace tensorwire::rxe
