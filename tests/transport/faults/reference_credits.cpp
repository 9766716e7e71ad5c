// End-to-end credits (IB specification vol. 1, 9.7.7.2): a responder that counts its receive WQEs says with each
// acknowledgement how many there are beyond the messages it has completed; the requester limits itself to them.
#include "reference_qp.hpp"

namespace tensorwire::transport::faults {

std::uint32_t ReferenceQp::credits_of(std::uint8_t code) noexcept {
  if (code < 2) return code;
  return code % 2 == 0 ? 1U << code / 2 : 3U << (code / 2 - 1);
}

std::uint8_t ReferenceQp::credit_code(std::size_t receives) noexcept {
  std::uint8_t code = 0;
  while (code < 30 && credits_of(static_cast<std::uint8_t>(code + 1)) <= receives) ++code;
  return code;
}

void ReferenceQp::take_credits(const wire::Headers& headers) {
  if (headers.syndrome / 32 != 0) return;
  const std::uint8_t code = headers.syndrome % 32;
  if (code == 31) {
    if (credits_given_) hits_(Point::kCreditsWithdrawn);
    credits_given_ = false;
    return;
  }
  hits_(Point::kCreditsTaken);
  credits_given_ = true;
  credit_limit_ = headers.msn + credits_of(code);
}

/// The packet needs a receive WQE, and the peer has not said that it has one.
bool ReferenceQp::beyond_credits(const Send& send, std::uint64_t number) const noexcept {
  if (!credits_given_) return false;
  const bool last = number + 1 == send.end;
  const bool is_send = transport::is_send(send.opcode);
  if (!is_send && !(send.opcode == WrOpcode::kWriteImm && last)) return false;
  const std::uint32_t ahead = (send.ssn - credit_limit_) % (1U << 24);
  return ahead != 0 && ahead < (1U << 23);
}

/// Beyond its credits a queue pair sends one packet at a time.
bool ReferenceQp::credits_permit(const Send& send) const noexcept {
  return in_flight == 0 || !beyond_credits(send, next);
}

}  // namespace tensorwire::transport::faults
