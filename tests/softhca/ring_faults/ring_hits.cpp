#include "ring_hits.hpp"

namespace tensorwire::softhca::faults {

using transport::faults::Point;

// Left out: what only a network does, and what the seeds of CI meet too rarely to be asked for.
std::span<const Point> points_on_a_ring() noexcept {
  static constexpr std::array kPoints = {Point::kResetToInit,
                                         Point::kInitToRtr,
                                         Point::kRtrToRts,
                                         Point::kInitToReset,
                                         Point::kRtsToReset,
                                         Point::kErrToReset,
                                         Point::kRtrToErr,
                                         Point::kRtsToErr,
                                         Point::kDestroyed,
                                         Point::kDropUnknownQp,
                                         Point::kDropWrongState,
                                         Point::kDropWrongSource,
                                         Point::kDropWrongPkey,
                                         Point::kDropOutOfSequence,
                                         Point::kDropStale,
                                         Point::kExecute,
                                         Point::kExecuteRead,
                                         Point::kExecuteAtomic,
                                         Point::kReadRepeated,
                                         Point::kAtomicRepeated,
                                         Point::kFetchForgotten,
                                         Point::kOldAckSent,
                                         Point::kReplyGone,
                                         Point::kInvalidFetch,
                                         Point::kInvalidResources,
                                         Point::kResponse,
                                         Point::kResponseGap,
                                         Point::kResponseBad,
                                         Point::kResponseUnplaced,
                                         Point::kImpliedByAck,
                                         Point::kDuplicate,
                                         Point::kDuplicateWhileNak,
                                         Point::kNakUnsent,
                                         Point::kGap,
                                         Point::kNotReadySend,
                                         Point::kNotReadyWrite,
                                         Point::kInvalidOrder,
                                         Point::kInvalidLength,
                                         Point::kInvalidReth,
                                         Point::kInvalidTooLong,
                                         Point::kAccessQp,
                                         Point::kAccessKey,
                                         Point::kAccessDomain,
                                         Point::kAccessRange,
                                         Point::kAccessRight,
                                         Point::kOperationalSges,
                                         Point::kOperationalGone,
                                         Point::kAckSent,
                                         Point::kNakSent,
                                         Point::kNakSentInError,
                                         Point::kCongestion,
                                         Point::kAckProgress,
                                         Point::kAckPartial,
                                         Point::kAckPastNext,
                                         Point::kSequenceNak,
                                         Point::kSequenceNakProgress,
                                         Point::kSequenceNakAgain,
                                         Point::kRnr,
                                         Point::kRnrWhileWaiting,
                                         Point::kRnrOver,
                                         Point::kTimeout,
                                         Point::kReserved,
                                         Point::kSourceLost,
                                         Point::kSourceLostWaits,
                                         Point::kSourceLostForgotten,
                                         Point::kSendSuccess,
                                         Point::kSendUnsignaled,
                                         Point::kSendFlushed,
                                         Point::kSendLocalProtection,
                                         Point::kSendInvalidRequest,
                                         Point::kSendRemoteAccess,
                                         Point::kSendRemoteOperation,
                                         Point::kSendBadResponse,
                                         Point::kSendRetryExceeded,
                                         Point::kSendRnrExceeded,
                                         Point::kReceiveSuccess,
                                         Point::kReceiveFlushed,
                                         Point::kReceiveTooShort,
                                         Point::kReceiveProtection,
                                         Point::kEstablished,
                                         Point::kRequestError,
                                         Point::kAccessError,
                                         Point::kFaultRestart,
                                         Point::kFaultForgedRequest,
                                         Point::kFaultForgedAnswer,
                                         Point::kFaultDeregister,
                                         Point::kFaultAbort,
                                         Point::kFaultMemory,
                                         Point::kRecovered};
  return kPoints;
}

std::vector<transport::faults::Tally> RingWorkspace::tally() const {
  std::vector<transport::faults::Tally> all;
  for (const Point point : points_on_a_ring()) {
    const auto at = static_cast<std::size_t>(point);
    all.push_back({transport::faults::kPointNames[at], hits.counts[at]});
  }
  for (std::size_t i = 0; i < kRingPointNames.size(); ++i) all.push_back({kRingPointNames[i], ring_hits[i]});
  return all;
}

}  // namespace tensorwire::softhca::faults
