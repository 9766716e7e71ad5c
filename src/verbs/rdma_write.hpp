// RDMA WRITE WITH IMMEDIATE: the bytes land in the peer's memory, and the 32-bit immediate in its completion queue says
// so. Data path: status instead of exceptions, nothing allocated.
#pragma once

#include <cstdint>

#include "verbs/queue_pair.hpp"

namespace tensorwire::verbs {

/// One piece of registered local memory. Sent inline (copied at once) where it fits and `may_inline` is set.
struct WriteRequest {
  std::uint64_t wr_id = 0;
  std::uint64_t local_address = 0;
  std::uint32_t local_key = 0;
  std::uint32_t length = 0;  ///< bytes; 0 sends the immediate alone
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
  std::uint32_t immediate = 0;  ///< host order; travels in network order
  bool signaled = true;         ///< a completion on success; errors always complete. Signal one at least every
                                ///< send_depth / 2 requests, or the queue cannot be reclaimed
  bool may_inline = true;       ///< copy payloads up to QueuePair::max_inline() into the request
};

/// Posts it. Returns 0 or a positive errno: ENOMEM (send queue full), EINVAL (not connected, too long).
int post_gpudirect_rdma_write(QueuePair& qp, const WriteRequest& request) noexcept;

/// As above without an immediate: the peer is not told.
int post_rdma_write_silent(QueuePair& qp, const WriteRequest& request) noexcept;

/// The immediate of a received completion, in host order; only for IBV_WC_WITH_IMM.
[[nodiscard]] std::uint32_t immediate_of(const ibv_wc& completion) noexcept;

}  // namespace tensorwire::verbs
