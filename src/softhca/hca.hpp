// The user-space HCA as its users (the ibverbs room, tests) see it: devices made from interfaces, and one running Hca
// per process and address with its engine, sockets, threads and objects. Everything is thread-safe; nothing here throws
// on the data path.
//
// An Hca is shared by every context of the process that opens the same device, and lives until the last one closes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/attributes.hpp"
#include "transport/completion_queue.hpp"
#include "transport/engine.hpp"
#include "transport/queue_pair.hpp"

namespace tensorwire::softhca {

/// A device as the list shows it, before anything is claimed: one per usable IPv4 address of an interface.
struct DeviceInfo {
  std::string name;       ///< "soft0", "soft1", ...; soft0 is the loopback interface
  std::string interface;  ///< "lo", "eth0"
  int interface_index = 0;
  std::uint32_t ipv4 =
      0;  ///< host order; for loopback 127.0.0.1 (a process gets the next free 127.0.0.x when it opens the device)
  /// IPv6 addresses of the interface are GIDs of this device: of the first one of each interface, and never of
  /// loopback, where every process has an address of its own.
  bool has_ipv6 = false;
  std::uint64_t guid = 0;  ///< network order semantics as ibv_get_device_guid; stable for an interface
};

/// Devices of this network namespace, in interface order. @throws Error when interfaces cannot be read.
[[nodiscard]] std::vector<DeviceInfo> list_devices();

struct GidEntry {
  wire::Gid gid;        ///< zero: empty index (ENODATA)
  bool roce_v2 = true;  ///< false: a RoCE v1 entry, which this HCA can show (ConnectX layout) but not use
  bool usable = false;  ///< packets can be sent from it
};

struct PortInfo {
  bool active = true;
  transport::MtuCode active_mtu = transport::MtuCode::k4096;
  transport::MtuCode max_mtu = transport::MtuCode::k4096;
  std::uint64_t speed_mbps = 0;  ///< 0: unknown
};

struct DeviceLimits {
  std::uint32_t max_qp = 4096, max_cq = 4096, max_mr = 1U << 20, max_pd = 4096;
  std::uint32_t max_mw = transport::kMaxWindows;
  std::uint32_t max_qp_wr = 16384, max_sge = transport::kMaxSge, max_cqe = 1U << 20;
  std::uint32_t max_inline = transport::kMaxInlineBytes;
  std::uint32_t max_srq = 4096, max_srq_wr = 16384;
  std::uint64_t max_mr_size = 1ULL << 46;
  std::uint32_t max_rd_atomic = transport::kMaxRdAtomic;  ///< READs and atomics outstanding, each way
};

/// How packets of a queue pair may travel.
enum class LinkChoice : std::uint8_t {
  kAuto,     ///< the same-host link where the peer is on this host and the kernel allows it, else packets
  kPackets,  ///< RoCEv2 packets always
};

class Hca;

/// A completion queue of an Hca: the engine's ring plus the consumer's lock and wake-up.
class Cq {
 public:
  virtual ~Cq() = default;
  /// Makes inline progress when the ring is empty, then moves completions out.
  virtual std::size_t poll(std::span<transport::Completion> out) noexcept = 0;
  virtual void arm(bool solicited_only) noexcept = 0;
  [[nodiscard]] virtual std::uint32_t capacity() const noexcept = 0;
  /// A completion found the queue full and was lost: the queue is of no use any more.
  [[nodiscard]] virtual bool overrun() const noexcept = 0;
};

/// Called by whichever thread makes progress, after its pass and without locks held.
struct CqCallback {
  void (*function)(void* user) = nullptr;
  void* user = nullptr;
};

/// A shared receive queue of an Hca. It goes when no queue pair uses it any more (the caller's duty).
class Srq {
 public:
  virtual ~Srq() = default;
  /// As transport::SharedReceiveQueue::post(), from any thread.
  virtual int post(const transport::RecvWr& wr) noexcept = 0;
  /// As transport::SharedReceiveQueue::arm(); the event is HcaEvent::kSrqLimitReached.
  virtual int arm(std::uint32_t limit) noexcept = 0;
  [[nodiscard]] virtual std::uint32_t limit() const noexcept = 0;
  /// For QpInit::srq.
  [[nodiscard]] virtual transport::SharedReceiveQueue& queue() noexcept = 0;
};

/// An asynchronous event of an Hca, with the `user` of the queue pair, completion queue or shared receive queue that it
/// concerns; null for events of the port.
enum class HcaEvent : std::uint8_t {
  kCqError = 0,
  kQpFatal = 1,
  kQpRequestError = 2,
  kQpAccessError = 3,
  kCommEstablished = 4,
  kSqDrained = 5,
  kPortActive = 9,
  kPortError = 10,
  kSrqLimitReached = 15,
  kLastWqeReached = 16,
  kGidChange = 18
};
struct EventCallback {
  void (*function)(void* user, HcaEvent event, void* object_user) = nullptr;
  void* user = nullptr;
};

class Qp;  // opaque; owned by the Hca

class Hca {
 public:
  /// Claims a slot of the device's address (for loopback the next free 127.0.0.x), binds UDP 4791, starts the engine
  /// thread; or returns the process's running Hca of this device.
  /// @throws Error: no such interface any more, no slot or loopback address left, port 4791 taken or in use by another
  /// user's processes (names the address and what to do).
  static std::shared_ptr<Hca> open(const DeviceInfo& device);
  virtual ~Hca() = default;

  [[nodiscard]] virtual const DeviceInfo& device() const noexcept = 0;  ///< ipv4 is the claimed address
  [[nodiscard]] virtual DeviceLimits limits() const noexcept = 0;
  [[nodiscard]] virtual PortInfo port() const = 0;
  [[nodiscard]] virtual std::vector<GidEntry> gid_table() const = 0;

  virtual transport::PdId create_pd() = 0;
  virtual int destroy_pd(transport::PdId pd) = 0;

  /// Memory of the host, or of a GPU as CUDA allocated it (docs/soft-hca.md). Returns 0 and sets key; EFAULT (not
  /// mapped, local write asked on read-only memory, not all of one GPU allocation, managed memory), EINVAL, or for GPU
  /// memory what keeps the GPU from being used, which one log line explains.
  virtual int register_memory(transport::PdId pd, std::uint64_t address, std::uint64_t length, std::uint64_t iova,
                              std::uint32_t access, std::uint32_t& key) = 0;
  /// Memory of a GPU, exported as a DMA-BUF; `iova` is its address, by which it is reached: the descriptor is only
  /// looked at. Returns as register_memory() does; EBADF, EINVAL where it is no DMA-BUF or too short, or where `iova`
  /// is not the memory's address; EOPNOTSUPP in a process without CUDA.
  virtual int register_dmabuf(transport::PdId pd, int fd, std::uint64_t offset, std::uint64_t length,
                              std::uint64_t iova, std::uint32_t access, std::uint32_t& key) = 0;
  /// Returns when no pass can touch the region any more; EBUSY while memory windows are bound to it.
  virtual int deregister_memory(std::uint32_t key) = 0;
  /// A memory window, bound to nothing. Returns 0 and sets key, EINVAL (no such domain) or ENOMEM (max_mw).
  virtual int allocate_window(transport::PdId pd, transport::WindowType type, std::uint32_t& key) = 0;
  /// Bound or not; `key` may have any tag. Returns when no pass can use it any more.
  virtual int deallocate_window(std::uint32_t key) = 0;

  virtual std::unique_ptr<Cq> create_cq(std::uint32_t capacity, CqCallback callback) = 0;

  /// `init.user` is handed back in events. @throws Error on bad limits.
  virtual std::unique_ptr<Srq> create_srq(const transport::SrqInit& init) = 0;
  /// Resolves the address of datagrams: the local GID, a UDP source port and the MTU are filled in. Returns 0, or what
  /// modify_qp() returns for such an address.
  virtual int resolve_datagram(transport::DatagramAddress& address) = 0;

  /// `init.send_cq/recv_cq/qpn/user` are ignored: given by the other arguments or chosen here. @throws Error on bad
  /// limits.
  virtual Qp* create_qp(const transport::QpInit& init, Cq& send_cq, Cq& recv_cq, void* user) = 0;
  virtual int destroy_qp(Qp* qp) = 0;
  [[nodiscard]] virtual std::uint32_t qpn(const Qp* qp) const noexcept = 0;
  [[nodiscard]] virtual transport::QpState state(const Qp* qp) const noexcept = 0;
  /// Effective before RTR only; else EINVAL.
  virtual int set_link(Qp* qp, LinkChoice choice) = 0;
  /// attr.av.local is filled from the GID table by sgid_index here; an empty index is ENODATA, a RoCE v1 one EINVAL,
  /// both with one log line.
  virtual int modify_qp(Qp* qp, const transport::QpAttr& attr, std::uint32_t mask) = 0;
  virtual transport::QpAttr query_qp(const Qp* qp) const = 0;
  /// How this queue pair's packets travel, decided at RTR: "same-host link" or "RoCEv2 packets (why)".
  virtual std::string link_description(const Qp* qp) const = 0;

  /// Chains are the caller's: `more` true delays the doorbell to the last of a chain.
  virtual int post_send(Qp* qp, const transport::SendWr& wr, bool more) noexcept = 0;
  /// All of them or, with an error, none: ENOMEM where there is no room for all. Each by itself must be what post_send
  /// takes.
  virtual int post_send_batch(Qp* qp, std::span<const transport::SendWr> batch) noexcept = 0;
  virtual int post_recv(Qp* qp, const transport::RecvWr& wr) noexcept = 0;

  /// Asynchronous events go to every registered callback.
  virtual void add_event_callback(EventCallback callback) = 0;
  virtual void remove_event_callback(void* user) = 0;

  /// Counters by the name mlx5 uses, transport and link together ("out_of_sequence", "rx_icrc_encapsulated",
  /// "rx_discards", ...).
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::uint64_t>> counters() const = 0;
};

}  // namespace tensorwire::softhca
