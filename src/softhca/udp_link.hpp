// The UDP link: RoCEv2 datagrams between our addresses' port 4791 and the peers' port 4791. It owns a receive socket
// for each address in use (the IPv4 one from the start, IPv6 ones from the first queue pair that names their GID), the
// pool of send sockets (one per address and UDP source port), the buffers and what is known of each peer. Split by job:
// udp_link_setup.cpp (sockets), udp_link_peers.cpp (paths, hellos), udp_link_group.cpp (other processes at the same
// address), udp_link_tx.cpp (building and sending), udp_link_rx.cpp (checking and placing).
//
// Invariants. Send sockets are never connected: the kernel then numbers the IPv4 identifications of the segments of one
// send 0, 1, 2, ..., which the ICRC covers. What the ICRC was made for is what leaves: source port and address are
// those of the socket. A datagram is answered to its sender's port 4791, never to its source port.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/unique_fd.hpp"
#include "softhca/capture.hpp"
#include "softhca/faults.hpp"
#include "softhca/late_dma.hpp"
#include "softhca/link.hpp"
#include "softhca/neighbours.hpp"
#include "softhca/peers.hpp"
#include "softhca/receive_group.hpp"
#include "wire/icrc.hpp"

namespace tensorwire::softhca {

struct UdpLinkConfig {
  std::uint64_t receive_buffer = 8ULL << 20;  ///< asked for as SO_RCVBUF reads back; the system may give less
  bool segment_offload = true;                ///< UDP_SEGMENT; off: each packet is a send of its own
  std::shared_ptr<Capture> capture;           ///< may be null
  std::unique_ptr<FaultInjector> faults;      ///< may be null
  UniqueFd neighbours;                        ///< where the address is shared: AddressClaim::neighbours
};

struct UdpLinkCounters {
  std::uint64_t rx_icrc_encapsulated = 0;  ///< ICRC wrong under every identification tried
  std::uint64_t rx_discards = 0;           ///< the kernel dropped it: receive buffer full
  std::uint64_t rx_malformed = 0;
  std::uint64_t rx_buffers = 0;  ///< reads that gave data (super-packets count once)
  std::uint64_t tx_sends = 0;    ///< system calls that sent
  std::uint64_t tx_errors = 0;   ///< packets that the kernel refused for good
  std::uint64_t tx_stalls = 0;   ///< the socket was full for the moment
  // Buffers that the kernel gave to the wrong process of a shared address.
  std::uint64_t strays_passed_on = 0;
  std::uint64_t strays_taken = 0;  ///< passed on to us
  std::uint64_t strays_lost = 0;   ///< their owner's queue was full
  std::uint64_t strays_of_nobody = 0;
};

class UdpLink final : public Link, private PacketSink {
 public:
  static constexpr std::size_t kMaxPacketBytes = 4096 + 64;  ///< payload, headers, pad and ICRC, rounded up
  static constexpr std::size_t kMaxDatagramBytes = 65'507;
  static constexpr std::size_t kMaxSegments = 64;  ///< UDP_MAX_SEGMENTS of every kernel that has UDP_SEGMENT

  /// `socket` is bound to port 4791 of the claimed IPv4 address. @throws Error when the kernel lacks what the link
  /// needs.
  UdpLink(LinkHost& host, UniqueFd socket, UdpLinkConfig config);

  // ---- set-up, lock held
  /// Readable when something has arrived at the IPv4 address, and at any other address in use. They never change.
  [[nodiscard]] std::array<int, 2> receive_fds() const noexcept {
    return {locals_.front().receive_socket.get(), other_sockets_.get()};
  }
  [[nodiscard]] std::uint64_t receive_buffer_bytes() const noexcept { return receive_buffer_bytes_; }
  /// Receives at this address of ours too. @throws Error when it cannot be bound.
  void use_address(const wire::Gid& local);
  /// The path from our address `local`, which is in use, towards a peer; made at its first use, when also a hello goes
  /// out.
  [[nodiscard]] transport::PathId path_to(const wire::Gid& local, const ProcessAddress& peer);
  /// A source port of `local` that is really bound, for a queue pair: as rxe derives it from the flow label, else from
  /// the QPNs, moved up when another process has it. @throws Error when no port can be bound.
  [[nodiscard]] std::uint16_t source_port_for(const wire::Gid& local, std::uint32_t flow_label, std::uint32_t qpn,
                                              std::uint32_t dest_qpn);
  /// Readable when the other processes at our address tell something, and what takes it; -1 where nobody shares it.
  [[nodiscard]] int neighbours_fd() const noexcept { return neighbours_ ? neighbours_->fd() : -1; }
  void hear_neighbours(Ps now) noexcept;
  /// After fork, in the child: the sockets are the parent's.
  void close_sockets() noexcept;
  /// Late DMA: a region goes or a queue pair changes; what waits to be read leaves now.
  void read_sources() noexcept;

  // ---- Link
  std::size_t receive(Ps now, bool& more) noexcept override;
  void transmit(std::span<const transport::TxDesc> descs, Ps now) noexcept override;
  [[nodiscard]] bool can_send() const noexcept override {
    return unsent_ == batch_count_ && (late_dma_ == nullptr || late_dma_->empty());
  }
  void flush(Ps now) noexcept override;
  [[nodiscard]] Ps next_deadline() const noexcept override;
  void on_timer(Ps now) noexcept override;
  void use(StagedMemory& staged) noexcept override { staged_ = &staged; }
  void visit_counters(const CounterSink& sink) const override;

  [[nodiscard]] const UdpLinkCounters& counters() const noexcept { return counters_; }

 private:
  /// An address of ours in use.
  struct Local {
    wire::Gid gid;
    UniqueFd receive_socket;
    std::uint32_t kernel_drops = 0;                    ///< as SO_RXQ_OVFL counts them
    std::optional<ReceiveGroup> group = std::nullopt;  ///< where the address is shared
  };

  struct SendSocket {
    UniqueFd fd;
    wire::Gid local;
    std::uint16_t port = 0;
  };

  /// What packets of one send have in common.
  struct Route {
    wire::Gid source;
    wire::Gid destination;
    std::uint16_t source_port = 0;
    std::uint8_t tos = 0;
    std::uint8_t ttl = 64;
    std::uint32_t flow_label = 0;
    bool operator==(const Route&) const = default;
  };

  /// Packets of one system call, contiguous in the arena.
  struct Batch {
    Route route;
    std::uint32_t source_qpn = 0;  ///< of its first packet
    std::size_t offset = 0;
    std::size_t bytes = 0;
    std::size_t segment_bytes = 0;
    std::uint16_t segments = 0;
    bool closed = false;  ///< ends with a shorter packet
  };

  /// One read: packets of `segment_bytes`, the last maybe shorter.
  struct Arrival {
    std::span<const std::byte> bytes;
    std::size_t segment_bytes = 0;
    std::size_t first_packet = 0;  ///< not 0: part of a read
    wire::Flow flow;
    std::uint8_t tos = 0;
    std::uint32_t flow_label = 0;
  };

  // ---- setup
  void add_local(const wire::Gid& gid, UniqueFd socket);
  const SendSocket* bind_send_socket(const wire::Gid& local, std::uint16_t port);
  [[nodiscard]] const SendSocket* send_socket(const wire::Gid& local, std::uint16_t port) const noexcept;

  // ---- peers
  void send_hello(Peer& peer, bool answer_wanted, Ps now) noexcept;
  void on_hello(std::span<const std::byte> bytes, const wire::Flow& flow, Ps now) noexcept;
  void announce_to_all(Ps now) noexcept;
  void repeat_hellos(Ps now) noexcept;
  void find_next_hello() noexcept;

  // ---- other processes at our addresses
  void ask_group(Local& local, Ps now) noexcept;
  void write_program(Local& local, Ps now) noexcept;
  void serve_groups(Ps now) noexcept;
  void on_probe(const Arrival& arrival, Ps now) noexcept;
  void on_place(const PlaceAnswer& answer, Ps now) noexcept;
  [[nodiscard]] bool is_ours(const Arrival& arrival) const noexcept;
  std::size_t sort_out(const Arrival& arrival, Ps now) noexcept;
  void pass_on(std::uint8_t slot, const Arrival& run, Ps now) noexcept;
  [[nodiscard]] Local* find_local(const wire::Gid& gid) noexcept;

  // ---- tx
  void build_and_send(std::span<const transport::TxDesc> descs, Ps now) noexcept;
  void append(const transport::TxDesc& desc) noexcept;
  [[nodiscard]] std::size_t build(const transport::TxDesc& desc, const wire::Flow& flow, std::uint16_t ip_id,
                                  std::span<std::byte> out) noexcept;
  void send_pending() noexcept;
  [[nodiscard]] bool send_batch(const Batch& batch) noexcept;
  void send_singly(const transport::TxDesc& desc, Ps now) noexcept;
  void send_late(Ps now, Ps due) noexcept;
  void send_packet(const OutPacket& packet) noexcept override;
  /// False when the socket is full. Packets of `source_qpn` that are larger than the route takes fail that queue pair
  /// (0: nobody's); every other refusal is counted and forgotten (the transport retries).
  bool send_bytes(const Route& route, std::uint32_t source_qpn, std::span<const std::byte> bytes,
                  std::size_t segment_bytes) noexcept;
  /// One system call. Returns 0 or errno.
  [[nodiscard]] int put(const SendSocket& socket, const Route& route, std::span<const std::byte> bytes,
                        std::size_t segment_bytes) const noexcept;
  void stop_flow_labels(const Route& route) noexcept;
  void on_refusal(const Route& route, std::uint32_t source_qpn, std::size_t packet_bytes, int error) noexcept;

  // ---- rx
  [[nodiscard]] bool read(Local& local, Arrival& arrival) noexcept;
  std::size_t take(const Arrival& arrival, Ps now) noexcept;
  void take_packet(std::span<const std::byte> bytes, const Arrival& arrival, const transport::PacketSource& source,
                   std::uint16_t guessed_id, Ps now) noexcept;
  [[nodiscard]] bool place(const transport::RxVerdict& verdict, std::span<const std::byte> payload,
                           std::uint32_t* crc) noexcept;
  void commit(const transport::RxVerdict& verdict, const wire::Headers& headers, std::uint32_t payload_bytes,
              Ps now) noexcept;
  [[nodiscard]] bool icrc_right(std::uint32_t crc, std::span<const std::byte> bytes, const Arrival& arrival,
                                std::uint16_t guessed_id) noexcept;

  LinkHost& host_;
  StagedMemory* staged_ = nullptr;  ///< null while no memory of a GPU is registered
  const std::uint64_t wanted_receive_buffer_;
  std::uint64_t receive_buffer_bytes_ = 0;  ///< of one receive socket
  std::vector<Local> locals_;               ///< the IPv4 address first
  UniqueFd other_sockets_;                  ///< epoll over the receive sockets of the others
  std::shared_ptr<Capture> capture_;
  std::unique_ptr<FaultInjector> faults_;
  std::unique_ptr<LateDma> late_dma_;  ///< null unless asked for
  const std::uint16_t max_segments_;   ///< of one send
  std::vector<SendSocket> send_sockets_;
  PeerTable peers_;
  std::uint16_t paths_made_ = 0;
  Ps next_hello_ = kNever;
  UdpLinkCounters counters_;
  std::optional<Neighbours> neighbours_;  ///< where the address is shared

  // Egress: batches are built in the arena and sent at once; those that the socket refuses stay until flush().
  std::vector<std::byte> arena_;
  std::size_t arena_used_ = 0;
  std::array<Batch, kMaxTxBatch> batches_;
  std::size_t batch_count_ = 0;
  std::size_t unsent_ = 0;  ///< first batch that has not left
  Ps retry_at_ = kNever;
  bool flow_labels_ = true;  ///< the kernel takes them
  int last_send_errno_ = 0;  ///< said once per kind

  std::vector<std::byte> receive_buffer_;

  wire::IcrcRun icrc_of_sent_;
  wire::IcrcRun icrc_of_received_;
};

}  // namespace tensorwire::softhca
