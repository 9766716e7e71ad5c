// What the simulated engines were seen doing: one count for each state transition, verdict, answer, completion status
// and kind of fault. A point that no seed reached is a hole in the simulation, and fails the run.
//
// The engine needs no hooks for this: verdicts, answers, completions, events and states are its public contract, and
// the rest follows from the reference model that is checked against it after every event.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tensorwire::transport::faults {

// clang-format off
#define TW_FAULT_POINTS(X)                                              \
  X(kResetToInit, "state RESET -> INIT")                                \
  X(kInitToRtr, "state INIT -> RTR")                                    \
  X(kRtrToRts, "state RTR -> RTS")                                      \
  X(kInitToReset, "state INIT -> RESET")                                \
  X(kRtrToReset, "state RTR -> RESET")                                  \
  X(kRtsToReset, "state RTS -> RESET")                                  \
  X(kErrToReset, "state ERR -> RESET")                                  \
  X(kRtrToErr, "state RTR -> ERR")                                      \
  X(kRtsToErr, "state RTS -> ERR")                                      \
  X(kInitToErr, "state INIT -> ERR")                                    \
  X(kRtsToSqd, "state RTS -> SQD")                                      \
  X(kSqdToRts, "state SQD -> RTS")                                      \
  X(kSqdToErr, "state SQD -> ERR, drained")                             \
  X(kDrainingToErr, "state SQD -> ERR, while it drains")                \
  X(kSqdToReset, "state SQD -> RESET")                                  \
  X(kRtsToSqe, "state RTS -> SQE, datagrams")                           \
  X(kSqeToRts, "state SQE -> RTS, datagrams")                           \
  X(kSqeToErr, "state SQE -> ERR, datagrams")                           \
  X(kUdToErr, "state to ERR, datagrams")                                \
  X(kLinkLocal, "connection over link-local IPv6 addresses")            \
  X(kRoutable, "connection over routable IPv6 addresses")               \
  X(kDestroyed, "queue pair destroyed and made again")                  \
  X(kDropUnknownQp, "drop: unknown queue pair")                         \
  X(kDropWrongState, "drop: queue pair not ready for it")               \
  X(kDropWrongSource, "drop: not from the peer's address")              \
  X(kDropWrongPkey, "drop: partition key")                              \
  X(kDropWrongOpcode, "drop: opcode of another service")                \
  X(kDropOutOfSequence, "drop: out of sequence")                        \
  X(kDropStale, "drop: stale")                                          \
  X(kDropBadLength, "drop: bad length")                                 \
  X(kDropUnparsed, "drop: not a packet")                                \
  X(kDropIcrc, "drop: ICRC")                                            \
  X(kDropIcrcPlaced, "drop: ICRC, after bytes were placed")             \
  X(kExecute, "responder: executed")                                    \
  X(kExecuteRead, "responder: READ executed")                           \
  X(kExecuteAtomic, "responder: atomic executed")                       \
  X(kReadRepeated, "responder: duplicate READ answered again")          \
  X(kAtomicRepeated, "responder: duplicate atomic answered again")      \
  X(kFetchForgotten, "responder: duplicate of a READ or atomic long gone") \
  X(kOldAckSent, "responder: ACK up to the next READ or atomic")        \
  X(kReplyBroken, "responder: NAK remote access in place of a response") \
  X(kRepetitionBroken, "responder: no repetition from memory that is gone") \
  X(kReplyGone, "responder: NAK remote operational in place of a response") \
  X(kInvalidFetch, "responder: NAK invalid request, READ or atomic")    \
  X(kInvalidResources, "responder: NAK invalid request, responder resources") \
  X(kResponse, "requester: response")                                   \
  X(kResponseGap, "requester: response beyond the one that is due")     \
  X(kResponseBad, "requester: response that cannot be")                 \
  X(kResponseUnplaced, "requester: response whose place is gone")       \
  X(kImpliedByAck, "requester: ACK leaves out an answer with data")     \
  X(kDuplicate, "responder: duplicate")                                 \
  X(kDuplicateWhileNak, "responder: duplicate while a NAK is owed")     \
  X(kNakUnsent, "responder: NAK taken back, what it missed has come")   \
  X(kGap, "responder: NAK sequence error")                              \
  X(kNotReadySend, "responder: RNR NAK for a SEND")                     \
  X(kNotReadyWrite, "responder: RNR NAK for a WRITE with immediate")    \
  X(kNotReadyShared, "responder: RNR NAK, shared receive queue empty")  \
  X(kSrqHeld, "shared receive queue: buffer taken for a message under way") \
  X(kSrqInterleaved, "shared receive queue: one more message under way") \
  X(kSrqHeldFlushed, "shared receive queue: buffer under way flushed")  \
  X(kSrqHeldForgotten, "shared receive queue: buffer under way lost by RESET") \
  X(kSrqOtherDomain, "shared receive queue: of another domain than its queue pair") \
  X(kSrqLimit, "event: shared receive queue's limit reached")           \
  X(kSrqLimitAtOnce, "event: limit reached when it was armed")          \
  X(kLastWqeReached, "event: last receive of a shared queue taken")     \
  X(kInvalidOrder, "responder: NAK invalid request, opcode sequence")   \
  X(kInvalidLength, "responder: NAK invalid request, packet length")    \
  X(kInvalidReth, "responder: NAK invalid request, message length")     \
  X(kInvalidTooLong, "responder: NAK invalid request, receive too short") \
  X(kAccessInvalidate, "responder: NAK remote access, to invalidate")   \
  X(kAccessQp, "responder: NAK remote access, queue pair's rights")     \
  X(kAccessKey, "responder: NAK remote access, unknown key")            \
  X(kAccessDomain, "responder: NAK remote access, protection domain")   \
  X(kAccessRange, "responder: NAK remote access, range")                \
  X(kAccessRight, "responder: NAK remote access, region's rights")      \
  X(kOperationalSges, "responder: NAK remote operational, scatter list") \
  X(kOperationalGone, "responder: NAK remote operational, memory gone") \
  X(kAckSent, "responder: ACK sent")                                    \
  X(kNakSent, "responder: NAK sent")                                    \
  X(kNakSentInError, "responder: NAK sent from ERR")                    \
  X(kCongestion, "requester: CNP")                                      \
  X(kCnpHeeded, "requester: CNP heeded")                                \
  X(kCnpIgnored, "requester: CNP ignored, congestion control is off")   \
  X(kMarked, "responder: marked packet, CNP owed")                      \
  X(kMarkedAgain, "responder: marked packet in the interval after a CNP") \
  X(kMarksToldLate, "responder: CNP owed at the end of the interval")   \
  X(kCnpSent, "responder: CNP sent")                                    \
  X(kPaced, "requester: held back by its rate")                         \
  X(kSlowest, "requester: at the lowest rate")                          \
  X(kCnpStranger, "drop: CNP not from the peer's address")              \
  X(kCreditsTaken, "requester: credits counted")                        \
  X(kCreditsRefreshed, "requester: credits with an old ACK")            \
  X(kCreditsWithdrawn, "requester: peer counts no more")                \
  X(kCreditsHeld, "requester: waits for credits")                       \
  X(kCreditsBeyond, "requester: one packet beyond its credits")         \
  X(kAckProgress, "requester: ACK with progress")                       \
  X(kAckPartial, "requester: ACK inside a message")                     \
  X(kAckPastNext, "requester: ACK beyond what was sent again")          \
  X(kSequenceNak, "requester: NAK sequence error, sent again")          \
  X(kSequenceNakProgress, "requester: NAK sequence error acknowledges") \
  X(kSequenceNakAgain, "requester: NAK sequence error, already answered") \
  X(kRnr, "requester: RNR NAK, waits")                                  \
  X(kRnrWhileWaiting, "requester: RNR NAK while it waits")              \
  X(kRnrOver, "requester: RNR wait over")                               \
  X(kTimeout, "requester: timeout, sent again")                         \
  X(kReserved, "requester: reserved syndrome")                          \
  X(kSourceLost, "requester: source gone when its packet left")         \
  X(kSourceLostWaits, "requester: local error waits for those before")  \
  X(kSourceLostForgotten, "requester: local error forgotten by going back") \
  X(kDrained, "send queue drained, no event wanted")                    \
  X(kDrainedEvent, "event: send queue drained")                         \
  X(kDrainedAtOnce, "send queue drained at once")                       \
  X(kDrainRefuses, "send queue drains: only ERR and RESET are possible") \
  X(kDrainEnds, "send queue drains: a message's rest leaves")           \
  X(kDrainRepeats, "send queue drains: sent again")                     \
  X(kDrainHolds, "SQD: a request waits")                                \
  X(kDrainedChange, "SQD: other times and limits")                      \
  X(kExecuteInSqd, "responder: executed in SQD")                        \
  X(kWindowBound, "memory window bound")                                \
  X(kWindowBoundAnew, "memory window of type 1 bound while it was bound") \
  X(kWindowUnbound, "memory window of type 1 bound to nothing")         \
  X(kWindowOutlives, "memory window of type 1 bound when its queue pair comes back") \
  X(kWindowInvalidated, "memory window invalidated by its owner")       \
  X(kWindowInvalidatedByPeer, "memory window invalidated by the peer's SEND") \
  X(kWindowUsed, "access through a memory window")                      \
  X(kWindowRange, "access beyond a memory window refused")              \
  X(kWindowClosed, "access through a closed memory window refused")     \
  X(kWindowHolds, "region with a bound memory window cannot be deregistered") \
  X(kLocalWaits, "local request completes after those before it")       \
  X(kSendBindError, "send completion: window bind error")               \
  X(kSendSuccess, "send completion: success")                           \
  X(kSendUnsignaled, "send completion: success, not signaled")          \
  X(kSendFlushed, "send completion: flushed")                           \
  X(kSendLocalProtection, "send completion: local protection error")    \
  X(kSendInvalidRequest, "send completion: remote invalid request")     \
  X(kSendRemoteAccess, "send completion: remote access error")          \
  X(kSendRemoteOperation, "send completion: remote operation error")    \
  X(kSendBadResponse, "send completion: bad response")                  \
  X(kSendRetryExceeded, "send completion: retries exceeded")            \
  X(kSendRnrExceeded, "send completion: RNR retries exceeded")          \
  X(kReceiveSuccess, "receive completion: success")                     \
  X(kReceiveFlushed, "receive completion: flushed")                     \
  X(kReceiveTooShort, "receive completion: local length error")         \
  X(kReceiveProtection, "receive completion: local protection error")   \
  X(kUdReceived, "datagram received")                                   \
  X(kUdReceivedIpv6, "datagram received, IPv6")                         \
  X(kUdReceivedShared, "datagram received into a shared queue's buffer") \
  X(kUdReceivedTwice, "datagram received again, as the network doubled it") \
  X(kUdWrongState, "datagram dropped: queue pair not ready")            \
  X(kUdWrongOpcode, "datagram dropped: opcode of another service")      \
  X(kUdWrongQkey, "datagram dropped: Q_Key")                            \
  X(kUdBadLength, "datagram dropped: longer than the link's MTU")       \
  X(kUdNoReceive, "datagram dropped: no receive")                       \
  X(kUdTooSmall, "datagram dropped: receive too small, which stays")    \
  X(kUdBadIcrc, "datagram dropped: ICRC")                               \
  X(kUdReceiveProtection, "datagram ends its queue pair: receive that may not be written") \
  X(kUdMemoryGone, "datagram ends its queue pair: receive's memory gone") \
  X(kUdSourceBroken, "datagram's source not registered")                \
  X(kUdSourceLost, "datagram's source gone when it left")               \
  X(kUdSendSuccess, "datagram send completion: success")                \
  X(kUdSendUnsignaled, "datagram send completion: success, not signaled") \
  X(kUdSendFlushed, "datagram send completion: flushed")                \
  X(kUdSendProtection, "datagram send completion: local protection error") \
  X(kUdAbort, "fault: datagram queue pair set to ERR")                  \
  X(kUdRestart, "fault: datagram queue pair restarted")                 \
  X(kUdForged, "fault: datagram forged")                                \
  X(kUdRtsToSqd, "state RTS -> SQD, datagrams")                         \
  X(kUdDrained, "datagrams drained")                                    \
  X(kUcRtsToSqe, "state RTS -> SQE, unreliable connection")             \
  X(kUcSqeToRts, "state SQE -> RTS, unreliable connection")             \
  X(kUcSqeToErr, "state SQE -> ERR, unreliable connection")             \
  X(kUcToErr, "state to ERR, unreliable connection")                    \
  X(kUcRtsToSqd, "state RTS -> SQD, unreliable connection")             \
  X(kUcDrained, "unreliable connection drained")                        \
  X(kUcDrainEnds, "unreliable connection drains: a message's rest leaves") \
  X(kUcExecute, "unreliable message: packet taken")                     \
  X(kUcWhole, "unreliable message arrived")                             \
  X(kUcTwice, "unreliable message arrived again, as the network doubled it") \
  X(kUcOldLife, "unreliable message arrived, of an earlier life of its sender") \
  X(kUcAnew, "unreliable message begins anew, after a gap")             \
  X(kUcAbandoned, "unreliable message ended by the next one")           \
  X(kUcHeldLeft, "unreliable message's buffer of a shared queue left to the next one") \
  X(kUcGap, "unreliable message ended: gap")                            \
  X(kUcOrder, "unreliable message ended: opcode sequence")              \
  X(kUcLength, "unreliable message ended: packet length")               \
  X(kUcReth, "unreliable message ended: message length")                \
  X(kUcNoReceive, "unreliable message ended: no receive")               \
  X(kUcTooLong, "unreliable message ended: receive too short, which stays") \
  X(kUcAccess, "unreliable message ended: remote access")               \
  X(kUcMemoryGone, "unreliable message ended: memory gone")             \
  X(kUcReceiveProtection, "unreliable message ends its queue pair: receive that may not be written") \
  X(kUcBadIcrc, "unreliable message: ICRC, nothing was placed")         \
  X(kUcSourceBroken, "unreliable message's source not registered")      \
  X(kUcSourceLost, "unreliable message's source gone when it left")     \
  X(kUcSendSuccess, "unreliable send completion: success")              \
  X(kUcSendUnsignaled, "unreliable send completion: success, not signaled") \
  X(kUcSendFlushed, "unreliable send completion: flushed")              \
  X(kUcSendProtection, "unreliable send completion: local protection error") \
  X(kUcPaced, "unreliable connection held back by its rate")            \
  X(kUcCnpSent, "unreliable connection tells of a marked packet")       \
  X(kUcCnpHeeded, "unreliable connection heeds a CNP")                  \
  X(kUcAbort, "fault: unreliable connection set to ERR")                \
  X(kUcRestart, "fault: one end of an unreliable connection restarted") \
  X(kUcDeregister, "fault: region of an unreliable connection deregistered") \
  X(kUcForged, "fault: unreliable packet forged")                       \
  X(kOverrun, "event: completion queue overran")                        \
  X(kOverrunCascade, "event: flushed into another completion queue, which overran") \
  X(kQpFatal, "event: queue pair fatal error")                          \
  X(kCompletionLost, "completion lost in an overrun")                   \
  X(kEstablished, "event: communication established")                   \
  X(kRequestError, "event: request error")                              \
  X(kAccessError, "event: access error")                                \
  X(kFaultLose, "fault: packet lost")                                   \
  X(kFaultDuplicate, "fault: packet duplicated")                        \
  X(kFaultReplay, "fault: old packet replayed")                         \
  X(kFaultReorder, "fault: packet overtaken")                           \
  X(kFaultCorrupt, "fault: packet corrupted")                           \
  X(kFaultCut, "fault: packet cut short")                               \
  X(kFaultMark, "fault: packet marked, congestion experienced")         \
  X(kFaultIpId, "fault: IP identification changed")                     \
  X(kFaultDestination, "fault: IPv6 destination changed")               \
  X(kFaultPort, "fault: UDP port changed")                              \
  X(kFaultLinkDown, "fault: link down")                                 \
  X(kFaultOneWay, "fault: one direction down")                          \
  X(kFaultPause, "fault: host paused")                                  \
  X(kFaultBlock, "fault: path blocked")                                 \
  X(kFaultRestart, "fault: peer restarted with a new PSN")              \
  X(kFaultForgedRequest, "fault: request forged")                       \
  X(kFaultForgedAnswer, "fault: answer forged")                         \
  X(kFaultDeregister, "fault: region deregistered under way")           \
  X(kFaultAbort, "fault: queue pair set to ERR")                        \
  X(kFaultMemory, "fault: memory gone")                                 \
  X(kRecovered, "connection brought up again")
// clang-format on

enum class Point : std::uint16_t {
#define TW_POINT(id, text) id,
  TW_FAULT_POINTS(TW_POINT)
#undef TW_POINT
      kCount
};

inline constexpr std::array<const char*, static_cast<std::size_t>(Point::kCount)> kPointNames = {
#define TW_POINT(id, text) text,
    TW_FAULT_POINTS(TW_POINT)
#undef TW_POINT
};

struct Hits {
  std::array<std::uint64_t, kPointNames.size()> counts{};

  void operator()(Point point) noexcept { ++counts[static_cast<std::size_t>(point)]; }
};

}  // namespace tensorwire::transport::faults
