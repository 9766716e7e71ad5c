// A shared receive queue as the Hca holds it: the engine's queue and the lock of its posters.
#pragma once

#include <cstdint>
#include <mutex>

#include "softhca/hca.hpp"

namespace tensorwire::softhca {

class HcaImpl;

class SrqImpl final : public Srq {
 public:
  /// Makes the engine's queue; `init.user` becomes user(). Shard's lock NOT held. @throws Error on bad limits.
  SrqImpl(HcaImpl& hca, const transport::SrqInit& init);
  /// Returns when no event of this queue is being told. Not to be called from an event callback.
  ~SrqImpl() override;

  int post(const transport::RecvWr& wr) noexcept override;
  int arm(std::uint32_t limit) noexcept override;
  [[nodiscard]] std::uint32_t limit() const noexcept override;
  [[nodiscard]] transport::SharedReceiveQueue& queue() noexcept override { return *queue_; }

  [[nodiscard]] void* user() const noexcept { return user_; }

 private:
  HcaImpl& hca_;
  void* user_;
  std::mutex post_mutex_;  ///< verbs are thread-safe, the engine's ring takes one poster at a time
  transport::SharedReceiveQueue* queue_ = nullptr;
};

}  // namespace tensorwire::softhca
