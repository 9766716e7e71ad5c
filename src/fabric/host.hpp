// A host of the simulated fabric: a NIC with one port, whose transport is the engine of transport/, and the delays
// between the NIC and the software that runs on it. Owned by the Fabric, which moves its packets and its time.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "fabric/packet.hpp"
#include "fabric/sparse_memory.hpp"
#include "transport/engine.hpp"
#include "transport/queue_pair.hpp"

namespace tensorwire::fabric {

struct HostConfig {
  Ps post_delay = 0;        ///< PCIe: from the post of a work request until the NIC has it
  Ps post_cost = 0;         ///< of software, for each work request: they are posted one after another
  Ps completion_delay = 0;  ///< PCIe and software: from the last byte until its completion is acted upon
  // A receiver slower than its link: it takes packets out of a buffer at this pace, and has PFC hold the others back.
  Ps receive_ps_per_byte = 0;  ///< 0: as fast as the link
  std::uint64_t receive_buffer_bytes = 256 * 1024;
  std::uint64_t receive_xoff_bytes = 128 * 1024;
  std::uint64_t receive_xon_bytes = 120 * 1024;
};

/// What the queue pairs of a connection are made with.
struct ConnectionConfig {
  std::uint8_t traffic_class = 26U << 2;  ///< DSCP 26
  transport::MtuCode mtu = transport::MtuCode::k4096;
  std::uint8_t timeout = 14;  ///< 4.096 us x 2^n
  std::uint8_t retry_cnt = 7;
  std::uint32_t send_depth = 4;
  std::uint32_t receive_depth = 0;
};

/// Who is told of the completions of a queue pair (QpInit::user).
class QpUser {
 public:
  virtual ~QpUser() = default;
  virtual void on_completion(const transport::Completion& completion, Ps now) = 0;
};

/// The base of the user memory of every host: addresses without bytes.
inline constexpr std::uint64_t kUserMemory = 1ULL << 44;
inline constexpr std::uint64_t kUserMemoryBytes = 1ULL << 40;

struct Host {
  Host(HostId id, const HostConfig& host_config, const transport::EngineConfig& engine_config);

  /// Brought up to RTR and RTS by Fabric::connect().
  transport::QueuePair& create_qp(const ConnectionConfig& config, QpUser* user);
  void connect(transport::QueuePair& qp, const ConnectionConfig& config, const wire::Gid& remote,
               std::uint32_t remote_qpn, std::uint64_t entropy);

  struct Post {
    Ps due;
    transport::QueuePair* qp;
    transport::SendWr wr;  ///< without its sges
    std::array<transport::Sge, 2> sges;
    std::uint8_t sge_count;
  };
  struct Seen {
    Ps due;
    transport::Completion completion;
  };

  HostConfig config;
  wire::Gid gid;
  SparseMemory memory;  ///< of user memory
  transport::CompletionQueue completions;
  transport::Engine engine;
  transport::PdId domain;
  std::uint32_t key;  ///< of user memory, local and remote
  std::uint32_t next_qpn = 1;
  std::uint32_t last_sender = 0;  ///< QPN of the last packet that it sent; 0: none yet

  std::uint64_t refused_posts = 0;  ///< must stay 0: its user posted more than it made room for
  Ps posting_until = 0;             ///< its software is busy
  Ps timer_at = kNever;             ///< the earliest kHostTimer that is pushed
  std::deque<Post> posts;
  std::deque<Seen> seen;

  // The receive buffer of a slow receiver.
  Ps drained_at = 0;
  std::uint64_t waiting_bytes = 0;
};

[[nodiscard]] inline wire::Gid gid_of(HostId host) noexcept { return wire::Gid::from_ipv4(0x0a000001U + host); }
[[nodiscard]] inline HostId host_of(const wire::Gid& gid) noexcept { return gid.ipv4() - 0x0a000001U; }

}  // namespace tensorwire::fabric
