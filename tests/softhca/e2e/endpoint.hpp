// One end of a connection for tests: an Hca with a protection domain, a registered buffer, a completion queue and a
// queue pair, and the few calls that tests make over and over.
#pragma once

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "softhca/devices.hpp"
#include "softhca/hca_open.hpp"

namespace tensorwire::softhca::testing {

/// ThreadSanitizer neither survives a jump out of its memcpy nor lets a forked child of threads start threads.
#ifdef TENSORWIRE_TSAN
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

inline DeviceInfo loopback_device() { return list_devices().front(); }

/// Addresses that no other test process uses: 127.x.y.z with x.y from the process id.
inline std::uint32_t test_address(std::uint32_t index) {
  const auto pid = static_cast<std::uint32_t>(::getpid());
  return (127U << 24) | ((64 + ((pid >> 8) & 63)) << 16) | ((pid & 0xff) << 8) | (index + 1);
}

inline HcaOptions packets_only() {
  HcaOptions options;
  options.packets_only = "test";
  return options;
}

inline constexpr std::uint32_t kEveryAccess = transport::kAccessLocalWrite | transport::kAccessRemoteWrite |
                                              transport::kAccessRemoteRead | transport::kAccessRemoteAtomic;

/// By the grammar of TENSORWIRE_FAULTS; each end takes a seed of its own.
inline HcaOptions faulty(std::string_view faults, std::uint64_t seed) {
  HcaOptions options = packets_only();
  FaultConfig config = parse_faults(faults);
  config.seed = seed;
  options.faults = std::make_unique<FaultInjector>(config);
  return options;
}

/// What one end tells the other, out of band.
struct Address {
  std::uint32_t ipv4 = 0;
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;
  std::uint64_t buffer = 0;
  std::uint32_t rkey = 0;
  wire::Gid gid = {};  ///< zero: that of ipv4

  [[nodiscard]] wire::Gid where() const { return gid.is_zero() ? wire::Gid::from_ipv4(ipv4) : gid; }
};

struct Endpoint {
  struct Settings {
    std::size_t bytes = 1 << 20;
    std::uint32_t depth = 128;
    std::uint8_t timeout = 14;
    std::uint8_t retry_cnt = 7;
    std::uint8_t rd_atomic = 4;
    transport::MtuCode mtu = transport::MtuCode::k4096;
    std::uint8_t traffic_class = 104;
    LinkChoice link = LinkChoice::kAuto;
    std::uint8_t sgid_index = 1;
    transport::QpType type = transport::QpType::kRc;  ///< or UC
    std::uint32_t flow_label = 0;
  };

  std::shared_ptr<Hca> hca;
  Settings settings;
  transport::PdId pd = 0;
  std::vector<std::byte> memory;
  std::uint32_t key = 0;
  std::unique_ptr<Cq> cq;
  Qp* qp = nullptr;
  std::uint32_t psn = 0;
  std::atomic<int> events{0};

  explicit Endpoint(std::shared_ptr<Hca> of) : Endpoint(std::move(of), Settings{}) {}
  Endpoint(std::shared_ptr<Hca> of, Settings with) : hca(std::move(of)), settings(with), memory(with.bytes) {
    pd = hca->create_pd();
    const auto at = reinterpret_cast<std::uint64_t>(memory.data());
    if (hca->register_memory(pd, at, memory.size(), at, kEveryAccess, key) != 0) {
      throw std::runtime_error("register_memory");
    }
    cq = hca->create_cq(4 * settings.depth,
                        {.function = [](void* user) { ++*static_cast<std::atomic<int>*>(user); }, .user = &events});
    transport::QpInit init;
    init.type = settings.type;
    init.pd = pd;
    init.caps = {.max_send_wr = settings.depth,
                 .max_recv_wr = settings.depth,
                 .max_send_sge = 4,
                 .max_recv_sge = 4,
                 .max_inline_data = 64};
    qp = hca->create_qp(init, *cq, *cq, this);
    psn = static_cast<std::uint32_t>(hca->qpn(qp) * 2654435761U) & 0xff'ffff;
  }
  ~Endpoint() {
    if (qp != nullptr) hca->destroy_qp(qp);
    cq.reset();
    hca->deregister_memory(key);
    hca->destroy_pd(pd);
  }

  [[nodiscard]] Address address() const {
    return {hca->device().ipv4,
            hca->qpn(qp),
            psn,
            reinterpret_cast<std::uint64_t>(memory.data()),
            key,
            hca->gid_table()[settings.sgid_index].gid};
  }

  [[nodiscard]] bool reliable() const { return settings.type == transport::QpType::kRc; }

  int to_init() const {
    transport::QpAttr attr;
    attr.state = transport::QpState::kInit;
    attr.access_flags = kEveryAccess;
    return hca->modify_qp(
        qp, attr,
        transport::kAttrState | transport::kAttrPkeyIndex | transport::kAttrPort | transport::kAttrAccessFlags);
  }

  int to_rtr(const Address& peer) const { return to_rtr(peer, settings.sgid_index); }
  int to_rtr(const Address& peer, std::uint8_t sgid_index) const {
    transport::QpAttr attr;
    attr.state = transport::QpState::kRtr;
    attr.has_grh = true;
    attr.av.remote = peer.where();
    attr.av.sgid_index = sgid_index;
    attr.av.traffic_class = settings.traffic_class;
    attr.av.flow_label = settings.flow_label;
    attr.path_mtu = settings.mtu;
    attr.dest_qpn = peer.qpn;
    attr.rq_psn = peer.psn;
    attr.max_dest_rd_atomic = settings.rd_atomic;
    attr.min_rnr_timer = 12;
    std::uint32_t mask = transport::kAttrState | transport::kAttrAv | transport::kAttrPathMtu |
                         transport::kAttrDestQpn | transport::kAttrRqPsn;
    if (reliable()) mask |= transport::kAttrMaxDestRdAtomic | transport::kAttrMinRnrTimer;
    return hca->modify_qp(qp, attr, mask);
  }

  int to_rts() const {
    transport::QpAttr attr;
    attr.state = transport::QpState::kRts;
    attr.timeout = settings.timeout;
    attr.retry_cnt = settings.retry_cnt;
    attr.rnr_retry = 7;
    attr.sq_psn = psn;
    attr.max_rd_atomic = settings.rd_atomic;
    std::uint32_t mask = transport::kAttrState | transport::kAttrSqPsn;
    if (reliable()) {
      mask |=
          transport::kAttrTimeout | transport::kAttrRetryCnt | transport::kAttrRnrRetry | transport::kAttrMaxQpRdAtomic;
    }
    return hca->modify_qp(qp, attr, mask);
  }

  int connect(const Address& peer) const {
    if (const int error = hca->set_link(qp, settings.link); error != 0) return error;
    if (const int error = to_init(); error != 0) return error;
    if (const int error = to_rtr(peer); error != 0) return error;
    return to_rts();
  }

  int post_receives(std::uint32_t count) const {
    for (std::uint32_t i = 0; i < count; ++i) {
      if (const int error = hca->post_recv(qp, {.wr_id = i, .sges = {}}); error != 0) return error;
    }
    return 0;
  }

  int write(const Address& peer, std::uint64_t offset, std::uint32_t bytes, std::uint32_t immediate,
            bool signaled = true, transport::WrOpcode opcode = transport::WrOpcode::kWrite) const {
    const transport::Sge sge{reinterpret_cast<std::uint64_t>(memory.data()) + offset, bytes, key};
    transport::SendWr wr;
    wr.wr_id = immediate;
    wr.opcode = opcode;
    wr.signaled = signaled;
    wr.immediate = immediate;
    wr.remote_address = peer.buffer + offset;
    wr.rkey = peer.rkey;
    wr.sges = {&sge, 1};
    return hca->post_send(qp, wr, false);
  }

  int write_imm(const Address& peer, std::uint64_t offset, std::uint32_t bytes, std::uint32_t immediate,
                bool signaled = true) const {
    return write(peer, offset, bytes, immediate, signaled, transport::WrOpcode::kWriteImm);
  }

  int read(const Address& peer, std::uint64_t offset, std::uint32_t bytes, std::uint64_t wr_id) const {
    const transport::Sge sge{reinterpret_cast<std::uint64_t>(memory.data()) + offset, bytes, key};
    transport::SendWr wr;
    wr.wr_id = wr_id;
    wr.opcode = transport::WrOpcode::kRead;
    wr.remote_address = peer.buffer + offset;
    wr.rkey = peer.rkey;
    wr.sges = {&sge, 1};
    return hca->post_send(qp, wr, false);
  }

  /// The old value goes to `offset` here, the word is at `offset` there.
  int fetch_add(const Address& peer, std::uint64_t offset, std::uint64_t add, std::uint64_t wr_id) const {
    const transport::Sge sge{reinterpret_cast<std::uint64_t>(memory.data()) + offset, transport::kAtomicBytes, key};
    transport::SendWr wr;
    wr.wr_id = wr_id;
    wr.opcode = transport::WrOpcode::kFetchAdd;
    wr.remote_address = peer.buffer + offset;
    wr.rkey = peer.rkey;
    wr.compare_add = add;
    wr.sges = {&sge, 1};
    return hca->post_send(qp, wr, false);
  }

  /// The next completion, polled for; nothing after `bound`.
  [[nodiscard]] std::optional<transport::Completion> next(Ps bound = 5 * kSecond) const {
    const Ps end = monotonic_now() + bound;
    std::array<transport::Completion, 1> one;
    while (monotonic_now() < end) {
      if (cq->poll(one) == 1) return one[0];
    }
    return std::nullopt;
  }

  [[nodiscard]] std::uint64_t counter(std::string_view name) const {
    for (const auto& [known, value] : hca->counters()) {
      if (known == name) return value;
    }
    throw std::runtime_error("no such counter: " + std::string{name});
  }
};

}  // namespace tensorwire::softhca::testing
