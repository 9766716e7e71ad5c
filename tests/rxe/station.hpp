// One side of a session: the device of an address, a queue pair with its completion queue, and registered memory.
// Plain libibverbs throughout, so that the same program runs on the drop-in library and on the kernel's rxe. Owns what
// it makes. Every call throws std::runtime_error with one line.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "control.hpp"

namespace tensorwire::rxe {

template <auto kDestroy>
struct Destroyer {
  void operator()(auto* object) const noexcept { kDestroy(object); }
};
template <typename Object, auto kDestroy>
using Owned = std::unique_ptr<Object, Destroyer<kDestroy>>;

/// Registered bytes.
class Memory {
 public:
  Memory(ibv_pd* pd, std::vector<std::byte> bytes, int access);

  [[nodiscard]] std::span<std::byte> bytes() noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t address() const noexcept { return reinterpret_cast<std::uintptr_t>(bytes_.data()); }
  [[nodiscard]] std::uint32_t key() const noexcept { return mr_->rkey; }
  [[nodiscard]] ibv_mr* region() const noexcept { return mr_.get(); }
  [[nodiscard]] ibv_sge sge(std::uint64_t offset, std::uint32_t length) const noexcept {
    return {.addr = address() + offset, .length = length, .lkey = mr_->lkey};
  }

 private:
  std::vector<std::byte> bytes_;
  Owned<ibv_mr, ibv_dereg_mr> mr_;
};

struct RemoteMemory {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t key = 0;
};

/// What one side tells the other.
struct Address {
  ibv_gid gid{};
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;
  std::uint32_t max_mtu = 0;  ///< as ibv_mtu
  std::uint32_t read_depth = 0;
  RemoteMemory slots, pattern, words, read_only;
};

class Station {
 public:
  static constexpr std::uint32_t kQueueDepth = 64;
  static constexpr std::uint32_t kMaxSge = 4;
  static constexpr std::uint32_t kQkey = 0x11223344;

  /// Opens the device with the GID of `ipv4` (network byte order); with `ipv6`, its unique local IPv6 GID is used.
  Station(std::uint32_t ipv4, ibv_qp_type type, bool ipv6);

  [[nodiscard]] ibv_context* context() const noexcept { return context_.get(); }
  [[nodiscard]] ibv_pd* pd() const noexcept { return pd_.get(); }
  [[nodiscard]] ibv_qp* qp() const noexcept { return qp_.get(); }

  /// Fills in what this object knows.
  [[nodiscard]] Address address() const;
  /// To RTS towards the peer; a datagram queue pair also gets its address handle.
  void connect(const Address& peer, std::uint32_t path_mtu, std::uint8_t ack_timeout);

  /// `wrs` is posted as one list, in order.
  void post_send(std::span<ibv_send_wr> wrs);
  void post_receive(std::uint64_t wr_id, std::optional<ibv_sge> sge);
  [[nodiscard]] ibv_ah* address_handle() const noexcept { return ah_.get(); }

  /// The next completion. Waits at most `bound_ms`, then nothing.
  [[nodiscard]] std::optional<ibv_wc> next_completion(int bound_ms);
  /// The next completion, which must be good.
  [[nodiscard]] ibv_wc next_success();

 private:
  void choose_unique_local_gid();
  void reset_to_init(ibv_qp_type type);
  [[nodiscard]] ibv_ah_attr route_to(const ibv_gid& gid) const noexcept;

  int gid_index_ = -1;
  Owned<ibv_context, ibv_close_device> context_;
  ibv_gid gid_{};
  Owned<ibv_pd, ibv_dealloc_pd> pd_;
  Owned<ibv_comp_channel, ibv_destroy_comp_channel> channel_;
  Owned<ibv_cq, ibv_destroy_cq> cq_;
  Owned<ibv_qp, ibv_destroy_qp> qp_;
  Owned<ibv_ah, ibv_destroy_ah> ah_;
  std::uint32_t psn_ = 0;
};

/// Whether the libibverbs of this process is the drop-in.
[[nodiscard]] bool on_soft_hca();
/// The counters of the HCA by name: rxe's from sysfs, the soft HCA's by its direct verbs.
[[nodiscard]] std::vector<std::pair<std::string, std::uint64_t>> counters(ibv_context* context);

}  // namespace tensorwire::rxe
