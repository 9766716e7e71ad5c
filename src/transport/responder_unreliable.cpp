// Responder of UC queue pairs: the same messages as on RC, with nothing said of them (IB specification vol. 1, 9.8.2).
//
// A message is taken packet by packet in the order of PSNs. What does not fit, for whatever reason, ends the message
// under way in silence; the next First or Only begins a new one, and its PSN is the expected one from then on. A SEND
// that ended so leaves its receive WQE to the next message. So there is no wrong PSN, only a First that was lost.
#include <algorithm>

#include "transport/qp.hpp"
#include "transport/responder.hpp"

namespace tensorwire::transport {

/// It is the next packet of the message under way.
bool Responder::continues(const wire::Headers& headers) const noexcept {
  return headers.psn == expected_psn_ && in_order(wire::traits(headers.opcode));
}

RxPlan Responder::judge_unreliable(const wire::Headers& headers, std::uint32_t bytes,
                                   RxVerdict& verdict) const noexcept {
  const wire::OpcodeTraits& traits = wire::traits(headers.opcode);
  if (!traits.begins() && !continues(headers)) return RxPlan::kGap;
  if (!length_fits(traits.position, bytes, mtu_bytes(qp_.attributes().path_mtu))) return RxPlan::kInvalidRequest;
  return traits.send ? judge_send(traits, headers, bytes, verdict) : judge_write(traits, headers, bytes, verdict);
}

void Responder::classify_unreliable(const wire::Headers& headers, std::uint32_t payload_bytes,
                                    RxVerdict& verdict) const noexcept {
  const RxPlan plan = judge_unreliable(headers, payload_bytes, verdict);
  // Nothing is sent again, so nothing would repair what a corrupt packet left: all are verified before they are copied.
  verdict.verify_first = true;
  verdict.plan = static_cast<std::uint8_t>(plan);
  if (plan != RxPlan::kExecute) verdict.piece_count = 0;
  verdict.action = verdict.piece_count != 0 ? RxAction::kPlace : RxAction::kControl;
}

void Responder::commit_unreliable(RxPlan plan, const wire::Headers& headers, std::uint32_t payload_bytes) noexcept {
  if (!can_receive(qp_.state())) return;
  if (plan == RxPlan::kExecute) {
    if (!wire::traits(headers.opcode).begins() && !continues(headers)) return;  // the judgement was overtaken
    expected_psn_ = headers.psn;
    return execute(headers, payload_bytes);
  }
  EngineCounters& counters = core_.counters;
  ++counters.rx_dropped;
  message_ = Message::kNone;
  switch (plan) {
    case RxPlan::kGap:
      ++counters.out_of_sequence;
      return;
    case RxPlan::kNotReady:
      ++counters.out_of_buffer;
      return;
    case RxPlan::kRemoteAccess:
      ++counters.resp_remote_access_errors;
      return;
    case RxPlan::kTooLong:
      ++counters.resp_local_length_error;
      return;
    case RxPlan::kLocalProtection:
      return reject_unreliable(headers);
    default:
      return;
  }
}

/// Memory of our own that may not be written, or is gone: of a receive WQE that is an error of the queue pair, of a
/// WRITE one more reason for silence.
void Responder::reject_unreliable(const wire::Headers& headers) noexcept {
  if (!can_receive(qp_.state())) return;
  message_ = Message::kNone;
  if (!wire::traits(headers.opcode).send || qp_.receive_queue().empty()) return;
  complete_receive(headers, WcStatus::kLocalProtectionError, 0);
  qp_.enter_error();
}

}  // namespace tensorwire::transport
