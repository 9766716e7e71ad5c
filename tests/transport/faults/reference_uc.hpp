// An unreliable connection's queue pair written a second time: messages arrive whole or not at all, nothing is said of
// them, and the next First or Only begins anew.
#pragma once

#include "reference_congestion.hpp"
#include "reference_unanswered.hpp"

namespace tensorwire::transport::faults {

class ReferenceUc final : public ReferenceUnanswered {
 public:
  ReferenceUc(Registrations& registrations, Hits& hits);

  void start(const ReferenceConfig& with);
  void on_sent(const TxDesc& desc);

  [[nodiscard]] Judgement judge(const wire::Headers& headers, std::uint32_t bytes, const PacketSource& source) const;
  void commit(const Judgement& judgement, const wire::Headers& headers, std::uint32_t bytes);
  /// The memory that it names is gone.
  void reject(const wire::Headers& headers);
  /// Of the next packet's payload in its message.
  [[nodiscard]] std::uint32_t offset() const noexcept { return packet() * config.mtu; }
  [[nodiscard]] std::uint32_t expected() const noexcept { return expected_; }

  ReferenceCongestion congestion;

 private:
  void stop_receiving() override { congestion.stop(); }
  void judge_message(const wire::Headers& headers, std::uint32_t bytes, Judgement& judgement) const;
  void execute(const wire::Headers& headers, std::uint32_t bytes);

  std::uint32_t expected_ = 0;
  bool established_ = false;
};

}  // namespace tensorwire::transport::faults
