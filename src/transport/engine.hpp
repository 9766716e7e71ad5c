// The sans-I/O engine of RC, UC and UD queue pairs: it is given work requests, packets and the time, and gives back
// packets, completions and the next deadline. It reads no clock, opens no socket, starts no thread. Its owner (a socket
// adapter, the virtual-time loop, a simulator, a fuzzer) is its *link*.
//
// Ownership and threads. The engine owns queue pairs, memory table and paths; the owner owns completion queues,
// MemoryOps and the lock: every method of Engine needs that lock. Without it, and concurrently with the engine, one
// thread at a time may call QueuePair::post_send, one QueuePair::post_recv, one SharedReceiveQueue::post, and one
// CompletionQueue::poll/arm.
//
// Egress is pulled: next_tx() when the link can send. Ingress is two steps: classify() changes no state; the link
// verifies the ICRC and copies; commit().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/time.hpp"
#include "transport/completion_queue.hpp"
#include "transport/dcqcn.hpp"
#include "transport/memory.hpp"
#include "transport/shared_receive_queue.hpp"
#include "transport/types.hpp"
#include "wire/headers.hpp"
#include "wire/network_header.hpp"

namespace tensorwire::transport {

class QueuePair;
struct Withdrawals;

/// A path is where the queue pairs towards one peer queue for the link: it has its own round-robin ready list and its
/// own limit of unacknowledged bytes, and a link that cannot send on it (ring full, priority paused) blocks it without
/// holding up the others.
using PathId = std::uint32_t;
inline constexpr PathId kDefaultPath = 0;

struct PathConfig {
  std::uint64_t window_bytes =
      1ULL << 20;  ///< unacknowledged payload of all its queue pairs, 512 a packet at least; one always passes
  bool whole_messages = false;  ///< no segmentation: one packet carries a message (same-host link)
};

struct EngineConfig {
  std::uint64_t seed = 1;                ///< keys
  Ps ack_timeout_floor = 0;              ///< an adapter in real time sets 20 ms
  std::uint32_t ack_request_every = 16;  ///< packets between AckReq bits inside a message
  std::uint32_t ack_coalesce = 16;       ///< a responder acknowledges at the latest after so many packets
  std::uint64_t qp_window_bytes =
      1ULL << 20;     ///< unacknowledged payload bytes of one queue pair (default: twice the bandwidth-delay product)
  DcqcnConfig dcqcn;  ///< off by default; on, packets are sent ECN-capable, marks answered with CNPs, and CNPs heeded
};

struct QpInit {
  QpType type = QpType::kRc;
  std::uint32_t qpn = 0;  ///< chosen by the owner: [23:16] process slot, [15:13] shard, [12:0] random
  PdId pd = 0;
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* recv_cq = nullptr;
  SharedReceiveQueue* srq = nullptr;  ///< then it has no receive queue of its own
  QpCaps caps;
  bool signal_all = false;
  void* user = nullptr;  ///< handed back in events
};

/// Told of asynchronous events inside an engine call; must not call back into the engine.
class EventListener {
 public:
  virtual ~EventListener() = default;
  virtual void on_async_event(AsyncEvent event, QueuePair& qp) noexcept = 0;
  virtual void on_srq_event(AsyncEvent /*event*/, SharedReceiveQueue& /*srq*/) noexcept {}
};

/// One packet to send, as fields and pieces, never bytes. Valid until the next call of next_tx(): the link serialises
/// before that. A link that hands descriptors on instead of bytes (same-host) may rely on the pieces until the work
/// request completes.
struct TxDesc {
  wire::Headers headers;  ///< pad set, psn set
  const AddressVector* av = nullptr;
  PathId path = kDefaultPath;
  std::uint32_t src_qpn = 0;
  std::uint32_t payload_bytes = 0;
  std::uint64_t withdrawals = 0;  ///< requests: what the queue pair had taken back by now (withdrawals.hpp)
  bool retransmission = false;
  bool inline_pieces = false;  ///< every piece is engine memory
  std::uint8_t piece_count = 0;
  std::array<Piece, kMaxSge> pieces;  ///< first piece_count valid; sum of lengths == payload_bytes
};

enum class RxAction : std::uint8_t {
  kDrop,     ///< forget it; `drop` says why; nothing to commit
  kControl,  ///< verify the ICRC, then commit(); no bytes to place
  kPlace,    ///< verify and copy the payload to `pieces`, then commit() or reject()
};

enum class DropReason : std::uint8_t {
  kNone,
  kUnknownQp,
  kWrongState,
  kWrongSource,  ///< RC, UC: not the peer's address
  kWrongPkey,
  kWrongOpcode,    ///< service of another QP type, or not supported
  kOutOfSequence,  ///< beyond the expected PSN after the one NAK
  kStale,          ///< an answer to nothing outstanding, a duplicate not worth an answer
  kBadLength,
  kWrongQkey,  ///< UD
  kNoReceive,  ///< UD: nothing posted, or too small for it
};
[[nodiscard]] std::string_view name(DropReason reason) noexcept;

struct PacketSource {
  wire::Gid address;
  std::uint32_t mtu =
      4096;  ///< largest payload of a packet on the link it came by (message size on the same-host link)
  bool congestion_experienced = false;  ///< IP ECN field is CE
  // What a datagram's receiver is told of its IP header.
  wire::Gid destination = {};
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;

  /// The same-host link, which carries what is acknowledged and nothing else.
  [[nodiscard]] constexpr bool whole_messages() const noexcept { return mtu > mtu_bytes(MtuCode::k4096); }
};

/// What classify() found. `plan` and `qp` are the engine's own and travel unchanged to commit().
struct RxVerdict {
  RxAction action = RxAction::kDrop;
  DropReason drop = DropReason::kNone;
  bool congested = false;  ///< the packet was marked, and DCQCN is on
  bool verify_first =
      true;  ///< First/Only: the ICRC must be right before a byte is copied. False: copy and CRC may be fused
  std::uint8_t plan = 0;
  std::uint8_t piece_count = 0;
  std::uint8_t prefix_bytes = 0;  ///< the pieces take so many bytes of `prefix`, then the payload (placement.hpp)
  QueuePair* qp = nullptr;
  std::array<Piece, kMaxSge> pieces;
  std::array<std::byte, wire::kNetworkHeaderBytes> prefix;
};

/// Counters under the names that mlx5 gives them (rdma statistic / hw_counters); monotonic.
struct EngineCounters {
  std::uint64_t tx_packets = 0, tx_bytes = 0, rx_packets = 0, rx_bytes = 0;  ///< payload bytes
  std::uint64_t retransmitted_packets = 0;                                   ///< packets sent again, any cause
  std::uint64_t out_of_sequence = 0;                                         ///< responder: PSN beyond the expected one
  std::uint64_t packet_seq_err = 0;                                          ///< requester: NAK-sequence received
  std::uint64_t local_ack_timeout_err = 0;                                   ///< requester: timer fired
  std::uint64_t duplicate_request = 0;
  std::uint64_t implied_nak_seq_err = 0;  ///< requester: a response or ACK left out an answer that carries data
  std::uint64_t rx_read_requests = 0, rx_atomic_requests = 0;  ///< responder: executed, not repeated
  std::uint64_t rnr_nak_retry_err = 0;                         ///< requester: RNR NAK received
  std::uint64_t out_of_buffer = 0;                             ///< responder: no receive work request
  std::uint64_t req_remote_access_errors = 0, req_remote_invalid_request = 0, req_cqe_error = 0,
                req_cqe_flush_error = 0;
  std::uint64_t resp_remote_access_errors = 0, resp_local_length_error = 0, resp_cqe_error = 0,
                resp_cqe_flush_error = 0;
  std::uint64_t np_ecn_marked_roce_packets = 0, np_cnp_sent = 0;  ///< notification point (DCQCN)
  std::uint64_t rp_cnp_handled = 0, rp_cnp_ignored = 0;           ///< reaction point; ignored: DCQCN is off
  std::uint64_t qkey_viol_cntr = 0;                               ///< datagrams with a wrong Q_Key
  std::uint64_t rx_dropped = 0;                                   ///< classify() said kDrop
};

class Engine {
 public:
  explicit Engine(const EngineConfig& config, EventListener* events = nullptr);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // ---- set-up: may allocate; @throws Error on bad limits (too many WRs, SGEs, inline bytes; QPN in use)
  [[nodiscard]] PdId create_pd();
  /// Returns 0, or EBUSY while regions, windows, queue pairs or shared receive queues of this domain live.
  int destroy_pd(PdId pd);
  MemoryTable& memory() noexcept;
  SharedReceiveQueue& create_srq(const SrqInit& init);
  /// Returns 0, or EBUSY while queue pairs use it.
  int destroy_srq(SharedReceiveQueue& srq);
  QueuePair& create_qp(const QpInit& init);
  /// The queue pair's completions are purged from its queues (their consumers must be excluded), and the windows of
  /// type 2 that it bound are unbound.
  void destroy_qp(QueuePair& qp);
  [[nodiscard]] QueuePair* find_qp(std::uint32_t qpn) noexcept;
  /// Applies the attribute rules of ibv_modify_qp (required and optional masks of each transition). Returns 0, or
  /// EINVAL with nothing changed. In SQD, while it drains, only ERR and RESET are possible. `path` is read when kAttrAv
  /// is set.
  int modify_qp(QueuePair& qp, const QpAttr& attr, std::uint32_t mask, Ps now, PathId path = kDefaultPath);
  /// @return the new path's id; ids are dense and never reused.
  PathId create_path(const PathConfig& config);
  void set_path_window(PathId path, std::uint64_t window_bytes);
  void set_path_blocked(PathId path, bool blocked) noexcept;
  /// From now on, CNPs of all queue pairs go out when this path may send, as in a class of service of their own: a
  /// queue pair whose own path is blocked still tells of marks. Set-up path.
  void set_cnp_path(PathId path) noexcept;
  /// For a link whose peers read messages where the sender has them (withdrawals.hpp). Null: no more.
  void count_withdrawals(Withdrawals* counts) noexcept;

  // ---- egress
  /// The owner saw work posted to qp (post_send): the engine looks at its send queue.
  void doorbell(QueuePair& qp, Ps now) noexcept;
  /// Also true while messages of UC and UD that next_tx() gave out have not completed: its next call completes them.
  [[nodiscard]] bool has_tx() const noexcept;
  /// Fills up to out.size() descriptors, all of one path, at most `budget_bytes` of payload (one packet always fits);
  /// returns how many. Responses and requests take turns; control packets (ACK, NAK) have the last place.
  std::size_t next_tx(Ps now, std::uint64_t budget_bytes, std::span<TxDesc> out) noexcept;
  /// The link could not read the pieces of a descriptor that next_tx gave (memory gone): local protection error for its
  /// work request, or NAK remote operational error in place of a READ response.
  void tx_failed(const TxDesc& desc, Ps now) noexcept;
  /// The link can never send what this queue pair sends (larger than the network takes): it fails, its oldest work
  /// request with a local queue-pair operation error (UC: its send queue, SQE). A datagram is only lost.
  void tx_refused(std::uint32_t qpn, Ps now) noexcept;

  // ---- ingress
  [[nodiscard]] RxVerdict classify(const wire::Headers& headers, std::uint32_t payload_bytes,
                                   const PacketSource& source, Ps now) const noexcept;
  void commit(const RxVerdict& verdict, const wire::Headers& headers, std::uint32_t payload_bytes, Ps now) noexcept;
  /// Placement failed (memory gone): NAK remote operational error, local error; local protection error for a READ.
  void reject(const RxVerdict& verdict, const wire::Headers& headers, Ps now) noexcept;
  /// The link places the bytes of this packet over several calls, and classifies it anew for each: meanwhile its
  /// receive work request must not become another queue pair's.
  void hold(const RxVerdict& verdict, const wire::Headers& headers) noexcept;

  // ---- time
  /// The earliest time at which on_timer() has something to do; kNever when idle.
  [[nodiscard]] Ps next_deadline() const noexcept;
  /// Fires what is due. The owner drains its sockets first, with a drain that began after the deadline.
  void on_timer(Ps now) noexcept;

  [[nodiscard]] const EngineCounters& counters() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tensorwire::transport
