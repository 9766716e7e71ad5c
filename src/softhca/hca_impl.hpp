// One running Hca: it owns the claim of its address, the shard with engine and links, the engine thread, and every
// object made from it. hca_objects.cpp holds what verbs calls do; hca_connect.cpp how a queue pair finds its way at
// RTR.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "base/random.hpp"
#include "softhca/address_claim.hpp"
#include "softhca/engine_thread.hpp"
#include "softhca/gid_table.hpp"
#include "softhca/gpu/staged_memory.hpp"
#include "softhca/hca.hpp"
#include "softhca/host_memory.hpp"
#include "softhca/interface_watch.hpp"
#include "softhca/shard.hpp"
#include "softhca/srq.hpp"

namespace tensorwire::softhca {

/// How an Hca is set up; by default as the environment says (see base/env.hpp).
struct HcaOptions {
  std::uint64_t receive_buffer = 8ULL << 20;
  bool segment_offload = true;
  Ps ack_timeout_floor = 20 * kMillisecond;
  GidLayout gid_layout = GidLayout::kV2Only;
  std::optional<transport::DcqcnVariant> dcqcn;  ///< none: off
  std::uint64_t line_rate_mbps = 0;              ///< 0: the interface's
  std::string packets_only;                      ///< why the same-host link is off; empty: it is on
  std::shared_ptr<Capture> capture;
  std::unique_ptr<FaultInjector> faults;
  std::shared_ptr<GpuPlatform> gpus;  ///< null: CUDA's, where the program uses it

  /// @throws Error that names the variable with a bad value.
  [[nodiscard]] static HcaOptions from_environment();
};

class HcaImpl final : public Hca {
 public:
  HcaImpl(const DeviceInfo& device, AddressClaim claim, HcaOptions options);
  ~HcaImpl() override;

  [[nodiscard]] const DeviceInfo& device() const noexcept override { return device_; }
  [[nodiscard]] DeviceLimits limits() const noexcept override { return {}; }
  [[nodiscard]] PortInfo port() const override;
  [[nodiscard]] std::vector<GidEntry> gid_table() const override;

  transport::PdId create_pd() override;
  int destroy_pd(transport::PdId pd) override;
  int register_memory(transport::PdId pd, std::uint64_t address, std::uint64_t length, std::uint64_t iova,
                      std::uint32_t access, std::uint32_t& key) override;
  int register_dmabuf(transport::PdId pd, int fd, std::uint64_t offset, std::uint64_t length, std::uint64_t iova,
                      std::uint32_t access, std::uint32_t& key) override;
  int deregister_memory(std::uint32_t key) override;
  int allocate_window(transport::PdId pd, transport::WindowType type, std::uint32_t& key) override;
  int deallocate_window(std::uint32_t key) override;
  std::unique_ptr<Cq> create_cq(std::uint32_t capacity, CqCallback callback) override;
  std::unique_ptr<Srq> create_srq(const transport::SrqInit& init) override {
    return std::make_unique<SrqImpl>(*this, init);
  }
  int resolve_datagram(transport::DatagramAddress& address) override;
  Qp* create_qp(const transport::QpInit& init, Cq& send_cq, Cq& recv_cq, void* user) override;
  int destroy_qp(Qp* qp) override;
  [[nodiscard]] std::uint32_t qpn(const Qp* qp) const noexcept override;
  [[nodiscard]] transport::QpState state(const Qp* qp) const noexcept override;
  int set_link(Qp* qp, LinkChoice choice) override;
  int modify_qp(Qp* qp, const transport::QpAttr& attr, std::uint32_t mask) override;
  transport::QpAttr query_qp(const Qp* qp) const override;
  std::string link_description(const Qp* qp) const override;
  int post_send(Qp* qp, const transport::SendWr& wr, bool more) noexcept override;
  int post_send_batch(Qp* qp, std::span<const transport::SendWr> batch) noexcept override;
  int post_recv(Qp* qp, const transport::RecvWr& wr) noexcept override;
  void add_event_callback(EventCallback callback) override { shard_.add_event_callback(callback); }
  void remove_event_callback(void* user) override { shard_.remove_event_callback(user); }
  [[nodiscard]] std::vector<std::pair<std::string, std::uint64_t>> counters() const override;

  // ---- for completion queues
  void progress_inline(Shard::Depth depth) noexcept;
  /// Before a queue pair, or the process, goes: what the last poll held back for the application's next call leaves.
  void let_out_held() noexcept {
    if (shard_.holds_back()) progress_inline(Shard::Depth::kTransmit);
  }
  /// The application is about to wait for an event instead of polling.
  void expect_blocking() noexcept;
  void forget(CqImpl& cq) noexcept;
  [[nodiscard]] Shard& shard() noexcept { return shard_; }

  // ---- around fork
  void before_fork() noexcept;
  /// In the child: the engine, its sockets and its address stay with the parent; every call fails from here on.
  void after_fork_in_child() noexcept;
  [[nodiscard]] bool dead() const noexcept { return dead_; }

 private:
  /// What connecting a queue pair found out: where its packets go.
  struct Route {
    int error = 0;
    transport::AddressVector av;
    std::optional<transport::PathId> path;
    std::string description;
  };

  [[nodiscard]] int add_region(const transport::MemoryRegion& region, std::unique_ptr<StagedRegion> staged,
                               std::uint32_t& key);
  [[nodiscard]] int register_gpu_memory(const GpuRange& range, transport::MemoryRegion region, std::uint32_t& key);
  [[nodiscard]] std::vector<EngineThread::Side> thread_sides();
  void accept_peers() noexcept;
  void hear_neighbours() noexcept;
  void tell_interface_events() noexcept;
  [[nodiscard]] std::uint32_t pick_qpn();
  [[nodiscard]] int resolve_gid(transport::AddressVector& av) const;
  [[nodiscard]] Route find_route(const Qp& qp, const transport::QpAttr& attr, std::uint32_t mask);
  [[nodiscard]] std::string why_packets(const Qp& qp) const;
  void update_gids();

  DeviceInfo device_;
  UniqueFd rendezvous_;
  std::string packets_only_;
  std::shared_ptr<Capture> capture_;
  HostMemory host_memory_;
  std::shared_ptr<GpuPlatform> gpus_;
  StagedMemory staged_memory_;     ///< idle until GPU memory is registered
  std::atomic<bool> dead_{false};  ///< we are a fork's child
  InterfaceWatch interface_;
  mutable std::mutex gids_mutex_;
  GidTable gids_;        ///< gids_mutex_
  EngineThread thread_;  ///< outlives the shard, whose links unwatch their descriptors
  mutable Shard shard_;

  // Shard's lock.
  Random random_;
  std::unordered_map<const Qp*, std::unique_ptr<Qp>> qps_;
  std::unordered_set<transport::PdId> pds_;
  std::unordered_map<std::uint32_t, std::unique_ptr<StagedRegion>> staged_regions_;  ///< by key
};

}  // namespace tensorwire::softhca
