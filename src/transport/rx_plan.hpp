// What classify() decided about a packet and commit() is to do; travels in RxVerdict::plan.
#pragma once

#include <cstdint>

namespace tensorwire::transport {

enum class RxPlan : std::uint8_t {
  kNone,
  kCongestion,  ///< a congestion notification packet

  // Requests, for the responder.
  kExecute,          ///< in sequence and permitted
  kDuplicate,        ///< acknowledge or answer again
  kGap,              ///< NAK: sequence error
  kNotReady,         ///< RNR NAK: no receive WQE
  kInvalidRequest,   ///< NAK: opcode sequence, lengths, alignment, responder resources, unsupported operation
  kRemoteAccess,     ///< NAK: rkey, PD, range, rights
  kTooLong,          ///< NAK: a SEND longer than its receive WQE
  kNotInvalidated,   ///< NAK: a SEND with invalidate names what it cannot invalidate
  kLocalProtection,  ///< NAK: the receive WQE's scatter list is not accessible

  // Answers, for the requester.
  kAcknowledge,       ///< an acknowledge packet: ACK, NAK, RNR NAK
  kCredits,           ///< an ACK that acknowledges nothing new, but may bring credits
  kResponse,          ///< the READ response or atomic answer that is due
  kResponseGap,       ///< one beyond it: the one that is due was lost
  kResponseBad,       ///< opcode, length or syndrome that cannot be
  kResponseUnplaced,  ///< where it should go is not accessible
};

[[nodiscard]] constexpr bool is_answer(RxPlan plan) noexcept { return plan >= RxPlan::kAcknowledge; }

}  // namespace tensorwire::transport
