// A reliable-connected queue pair and the address that its peer needs. A QueuePair owns its ibv_qp and shares ownership
// of its domain and completion queues; roce_qp.hpp connects it, rdma_write.hpp uses it.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "verbs/completion_queue.hpp"
#include "verbs/gid.hpp"
#include "verbs/protection_domain.hpp"

namespace tensorwire::verbs {

/// What two ends exchange before they connect. Written and read by explicit bytes, big-endian.
struct QpAddress {
  Gid gid;
  std::uint32_t qpn = 0;  ///< 24 bits
  std::uint32_t psn = 0;  ///< 24 bits; the first packet number that this end sends
  ibv_mtu mtu = IBV_MTU_1024;
  std::uint16_t lid = 0;  ///< always 0 on RoCE

  static constexpr std::size_t kBytes = 28;
  bool operator==(const QpAddress&) const = default;
};

[[nodiscard]] std::array<std::byte, QpAddress::kBytes> to_bytes(const QpAddress& address) noexcept;
/// nullopt when a field is out of range.
[[nodiscard]] std::optional<QpAddress> qp_address_from_bytes(
    std::span<const std::byte, QpAddress::kBytes> bytes) noexcept;

/// How the packets of a queue pair may travel. Only Tensorwire's HCA has another way than packets.
enum class SameHostLink : std::uint8_t { kAuto, kPackets };

struct QpOptions {
  std::uint32_t send_depth = 128;     ///< work requests
  std::uint32_t receive_depth = 128;  ///< work requests
  std::uint32_t max_inline = 64;      ///< bytes copied into the work request; lowered to what the device can
  std::uint32_t max_send_pieces = 1;
  SameHostLink link = SameHostLink::kAuto;
};

class QueuePair {
 public:
  /// An RC queue pair in RESET with a fresh random PSN.
  /// @throws Error when the device refuses, naming the limits.
  [[nodiscard]] static std::unique_ptr<QueuePair> create(std::shared_ptr<ProtectionDomain> domain,
                                                         std::shared_ptr<CompletionQueue> send_queue,
                                                         std::shared_ptr<CompletionQueue> receive_queue,
                                                         const QpOptions& options);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  /// What the peer needs to connect to this end.
  [[nodiscard]] const QpAddress& address() const noexcept { return address_; }
  [[nodiscard]] std::uint32_t qpn() const noexcept { return qp_->qp_num; }
  [[nodiscard]] std::uint32_t max_inline() const noexcept { return max_inline_; }
  [[nodiscard]] const std::shared_ptr<Context>& context() const noexcept { return domain_->context(); }
  [[nodiscard]] ibv_qp* raw() const noexcept { return qp_; }

  /// One receive without memory, for the immediate of a write. Returns 0 or a positive errno.
  int post_empty_receive(std::uint64_t wr_id) noexcept;
  /// `count` of them with one doorbell where the device can. Returns 0 or a positive errno.
  int post_empty_receives(std::uint64_t wr_id, std::uint32_t count) noexcept;

  /// Moves to ERR: outstanding work completes with a flush status. Returns 0 or a positive errno.
  int flush() noexcept;

  /// "same-host link", "RoCEv2 packets (asked for)"; valid after the queue pair is connected.
  [[nodiscard]] std::string link_description() const;

 private:
  QueuePair(std::shared_ptr<ProtectionDomain> domain, std::shared_ptr<CompletionQueue> send_queue,
            std::shared_ptr<CompletionQueue> receive_queue, ibv_qp* qp, std::uint32_t max_inline);

  std::shared_ptr<ProtectionDomain> domain_;
  std::shared_ptr<CompletionQueue> send_queue_;
  std::shared_ptr<CompletionQueue> receive_queue_;
  ibv_qp* qp_;
  std::uint32_t max_inline_;
  QpAddress address_;
};

}  // namespace tensorwire::verbs
