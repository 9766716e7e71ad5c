// The receiving half of a UD queue pair: a message is a packet, from any address, and nothing answers it. It stands
// where the responder stands on a connected queue pair and uses its tools for scattering. Owned by its Qp.
//
// What a stranger sends can only be dropped and counted; a receive buffer of our own that may not be written is an
// error of the queue pair (ERR).
#pragma once

#include <cstdint>

#include "transport/engine.hpp"
#include "transport/responder.hpp"

namespace tensorwire::transport {

struct Core;
struct Qp;

class Ud {
 public:
  Ud(Core& core, Qp& qp) : core_(core), qp_(qp) {}

  /// P_Key and queue pair were checked by the engine.
  void classify(const wire::Headers& headers, std::uint32_t payload_bytes, const PacketSource& source,
                RxVerdict& verdict) const noexcept;
  void commit(RxPlan plan, const wire::Headers& headers, std::uint32_t payload_bytes) noexcept;
  /// The bytes of a packet that was judged kExecute could not be placed.
  void reject(const wire::Headers& headers) noexcept;

 private:
  [[nodiscard]] DropReason why_not(const wire::Headers& headers, std::uint32_t payload_bytes,
                                   const PacketSource& source) const noexcept;
  [[nodiscard]] bool receives() const noexcept;
  void complete_receive(const wire::Headers& headers, WcStatus status, std::uint32_t payload_bytes) noexcept;
  void fail_receive(const wire::Headers& headers) noexcept;

  Core& core_;
  Qp& qp_;
};

}  // namespace tensorwire::transport
