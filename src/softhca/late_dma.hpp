// The fault "late DMA": a packet leaves, and its source is read, only some time after the engine gave it out, as where
// an HCA's read has to wait for others. LateDma keeps the descriptors, in their order, until their time; the link that
// owns it reads and sends. While any waits nothing more is pulled from the engine, so what they point to stays (see
// Engine::next_tx). What is taken away all the same, as a region, the link must read before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/time.hpp"
#include "softhca/faults.hpp"
#include "softhca/link.hpp"

namespace tensorwire::softhca {

class LateDma {
 public:
  explicit LateDma(const FaultConfig& config) noexcept : config_(config) {}

  [[nodiscard]] bool empty() const noexcept { return first_ == count_; }
  /// Descriptors of one Engine::next_tx(), at most kMaxTxBatch; only when empty(). A packet with a source in memory
  /// waits late_by(), every packet for those ahead of it.
  void take(std::span<const transport::TxDesc> descs, Ps now) noexcept;
  /// When the next one leaves; kNever when none waits.
  [[nodiscard]] Ps next_deadline() const noexcept { return empty() ? kNever : leave_at_[first_]; }
  /// The next one, which waits no more. Not when empty().
  [[nodiscard]] const transport::TxDesc& leave() noexcept { return waiting_[first_++]; }

 private:
  const FaultConfig config_;
  std::uint64_t index_ = 0;  ///< of the next packet with a source
  std::array<transport::TxDesc, kMaxTxBatch> waiting_;
  std::array<Ps, kMaxTxBatch> leave_at_{};
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

}  // namespace tensorwire::softhca
