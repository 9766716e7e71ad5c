// The send queue: a ring of work-queue entries, their scatter lists and their inline bytes, all allocated at creation
// (or at the first post: QpCaps::late_rings).
// One thread posts; the engine consumes, under its owner's lock. The two share two counters and nothing else: an entry
// belongs to the poster until `posted_` passes it, then to the engine until `freed_` passes it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/types.hpp"

namespace tensorwire::transport {

/// A work request at rest. Indices of entries are free-running 32-bit counters; the ring masks them.
struct SendWqe {
  std::uint64_t wr_id;
  std::uint64_t remote_address;
  std::uint32_t rkey;
  std::uint32_t immediate;
  std::uint32_t length;  ///< bytes of the message
  WrOpcode opcode;
  std::uint8_t sge_count;
  bool signaled;
  bool solicited;
  bool inline_data;
  bool fence;
  bool fetch;  ///< is_fetch(opcode)
  bool local;  ///< is_local(opcode)
  // The requester's notes, written when the first packet leaves.
  std::uint32_t first_psn;
  std::uint32_t packets;          ///< PSNs it takes: packets of the message, or of a READ's responses; 0 when local
  std::uint32_t request_packets;  ///< PSNs that one READ request asks for; the last may ask for fewer
  std::uint32_t ssn;              ///< number of its first request, as the peer's MSN counts them
  bool cut;                       ///< by the path MTU although the path carries whole messages
};

/// What an atomic brings along; beside the entries, because nothing else has it.
struct AtomicOperands {
  std::uint64_t compare_add;
  std::uint64_t swap;
};

/// Where a posted datagram goes.
struct DatagramTarget {
  DatagramAddress address;
  std::uint32_t qpn;
  std::uint32_t qkey;
};

class SendQueue {
 public:
  SendQueue(const QpCaps& caps, QpType type);

  // ---- the posting thread
  /// Returns 0, EINVAL, EOPNOTSUPP or ENOMEM, as QueuePair::post_send() says.
  int post(const SendWr& wr) noexcept;

  // ---- the engine
  [[nodiscard]] std::uint32_t posted() const noexcept { return posted_.load(std::memory_order_acquire); }
  /// Index of the oldest entry that has not completed.
  [[nodiscard]] std::uint32_t head() const noexcept { return freed_.load(std::memory_order_relaxed); }
  [[nodiscard]] SendWqe& at(std::uint32_t index) noexcept { return entries_[index & mask_]; }
  [[nodiscard]] const SendWqe& at(std::uint32_t index) const noexcept { return entries_[index & mask_]; }
  [[nodiscard]] std::span<const Sge> sges(std::uint32_t index) const noexcept;
  [[nodiscard]] const std::byte* inline_bytes(std::uint32_t index) const noexcept;
  [[nodiscard]] const AtomicOperands& operands(std::uint32_t index) const noexcept { return operands_[index & mask_]; }
  [[nodiscard]] const WindowBinding& binding(std::uint32_t index) const noexcept { return bindings_[index & mask_]; }
  /// Of a datagram; only on a UD queue pair.
  [[nodiscard]] const DatagramTarget& target(std::uint32_t index) const noexcept { return targets_[index & mask_]; }
  /// Gives the head entry back to the poster.
  void pop() noexcept { freed_.store(head() + 1, std::memory_order_release); }
  /// Gives everything back (RESET).
  void clear() noexcept { freed_.store(posted(), std::memory_order_release); }

 private:
  void allocate();

  std::uint32_t capacity_;
  std::uint32_t mask_;
  std::uint32_t max_sge_;
  std::uint32_t max_inline_;
  QpType type_;
  std::vector<SendWqe> entries_;
  std::vector<Sge> sges_;
  std::vector<std::byte> inline_;
  std::vector<AtomicOperands> operands_;  ///< only on an RC queue pair
  std::vector<WindowBinding> bindings_;   ///< none on a UD queue pair
  std::vector<DatagramTarget> targets_;   ///< one an entry on a UD queue pair, else none
  alignas(64) std::atomic<std::uint32_t> posted_{0};
  alignas(64) std::atomic<std::uint32_t> freed_{0};
};

}  // namespace tensorwire::transport
