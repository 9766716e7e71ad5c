// GPU memory of one Hca: its registered regions and a Staging for each GPU that has some. Links call it, with the
// shard's lock held, at the few moments that matter; while no GPU memory is registered there is none, and a link has
// one branch.
//
//   transmit   fetch(descs)      what these packets are made of begins to be read; fetched() when they are built
//   receive    placing(qp)       what is stored from here on is noted for that queue pair; placed() ends that
//              landed(...)       before Engine::commit() of a packet that may complete something: its bytes are there
//              received(now)     at the end: what was noted begins to be copied
//   before transmit
//              before_send(descs) no answer leaves before what it answers is there
//
// With the fault gpu_write_late, landed() and answers wait for nothing: bytes come so much later, or when a READ asks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/time.hpp"
#include "softhca/gpu/staging.hpp"
#include "softhca/link.hpp"
#include "transport/queue_pair.hpp"

namespace tensorwire::softhca {

class StagedMemory {
 public:
  StagedMemory(GpuPlatform& platform, Ps write_late);

  // ---- set-up
  /// Without the shard's lock. Waits for nothing. @throws Error when the GPU cannot be used.
  [[nodiscard]] std::unique_ptr<StagedRegion> make_region(const GpuRange& range);
  /// Lock held. Nothing is under way any more: a region may go.
  void settle_all() noexcept;

  // ---- transmit
  void fetch(std::span<const transport::TxDesc> descs) noexcept;
  void fetched() noexcept;
  void before_send(std::span<const transport::TxDesc> descs) noexcept;

  // ---- receive
  void placing(const transport::QueuePair& qp) noexcept;
  void placed() noexcept;
  /// False: bytes of the message, or of an earlier one of the queue pair, were lost. Engine::reject() then.
  [[nodiscard]] bool landed(const transport::RxVerdict& verdict, const wire::Headers& headers) noexcept;
  void received(Ps now) noexcept;

  // ---- late writes
  [[nodiscard]] Ps next_deadline() const noexcept { return due_; }
  void on_timer(Ps now) noexcept;

  void visit_counters(const Link::CounterSink& sink) const;

 private:
  struct Gpu {
    int device;
    std::unique_ptr<Staging> staging;
  };

  GpuPlatform& platform_;
  const Ps write_late_;
  Ps due_ = kNever;
  std::mutex set_up_;
  std::vector<Gpu> gpus_;  ///< reserved: looked through while set-up adds one
  std::atomic<std::size_t> count_{0};

  [[nodiscard]] std::span<const Gpu> gpus() const noexcept {
    return std::span{gpus_.data(), count_.load(std::memory_order_acquire)};
  }
};

}  // namespace tensorwire::softhca
