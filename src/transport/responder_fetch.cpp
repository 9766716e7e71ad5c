// Responder, READ and atomics: judged, executed once, and answered again when they come again.
#include "transport/qp.hpp"
#include "transport/responder.hpp"

namespace tensorwire::transport {

using wire::NakCode;

RxPlan Responder::judge_fetch(const wire::Headers& headers) const noexcept {
  const bool atomic = wire::traits(headers.opcode).atomic_eth;
  const std::uint32_t length = atomic ? kAtomicBytes : headers.dma_length;
  if (!resources_.has_room() || length > kMaxMessageBytes) return RxPlan::kInvalidRequest;
  if (atomic && headers.va % kAtomicBytes != 0) return RxPlan::kInvalidRequest;
  if (length == 0) return RxPlan::kExecute;

  const std::uint32_t right = atomic ? kAccessRemoteAtomic : kAccessRemoteRead;
  if ((qp_.attributes().access_flags & right) == 0) return RxPlan::kRemoteAccess;
  Piece piece;
  if (check_remote(headers.rkey, headers.va, length, right, piece) != AccessResult::kOk) return RxPlan::kRemoteAccess;
  // A region may be registered at an address of another alignment than the memory has.
  return atomic && piece.address % kAtomicBytes != 0 ? RxPlan::kInvalidRequest : RxPlan::kExecute;
}

void Responder::execute_read(const wire::Headers& headers) noexcept {
  ++core_.counters.rx_read_requests;
  FetchRecord record;
  record.psns = packets_of_message(headers.dma_length, mtu_);
  record.length = headers.dma_length;
  record.rkey = headers.rkey;
  record.va = headers.va;
  remember(record);
}

// Here, and nowhere else, bytes move in the engine's own hands: the verified packet is executed together with the step
// that makes every later copy of it a duplicate.
void Responder::execute_atomic(const wire::Headers& headers) noexcept {
  FetchRecord record;
  record.psns = 1;
  record.opcode = headers.opcode;
  record.va = headers.va;
  const bool compare = headers.opcode == wire::Opcode::kRcCompareSwap;
  const AtomicOperation operation{.compare = compare,
                                  .operand = compare ? headers.compare : headers.swap_add,
                                  .swap = compare ? headers.swap_add : 0};
  Piece piece;
  const AccessResult result = check_remote(headers.rkey, headers.va, kAtomicBytes, kAccessRemoteAtomic, piece);
  if (result != AccessResult::kOk || !piece.mr->ops->atomic(piece.address, operation, record.original)) {
    fail(NakCode::kRemoteOperational);
    return qp_.raise(AsyncEvent::kQpAccessError);
  }
  ++core_.counters.rx_atomic_requests;
  remember(record);
}

// The answer acknowledges all before it, so that an ACK that is owed is not, any more.
void Responder::remember(FetchRecord record) noexcept {
  record.position = position_;
  pass(record.psns, 0);
  msn_ = (msn_ + 1) & wire::kPsnMask;
  resources_.add(record);
  owed_ = Owed::kNothing;
  unacknowledged_ = 0;
  schedule();
}

// A duplicate READ may ask for the rest of the first one only. Whatever does not fit what was executed is no duplicate
// of it, and gets no answer.
void Responder::repeat_fetch(std::uint64_t position, const wire::Headers& headers) noexcept {
  FetchRecord* record = resources_.find(position);
  if (record == nullptr || record->opcode != headers.opcode) return;
  const auto first = static_cast<std::uint32_t>(position - record->position);
  const std::uint64_t skipped = std::uint64_t{first} * mtu_;
  if (headers.va != record->va + skipped) return;
  if (record->is_read()) {
    if (headers.rkey != record->rkey || skipped + headers.dma_length > record->length) return;
    resources_.start_reply(*record, first, headers.dma_length);
  } else {
    resources_.start_reply(*record, 0, 0);
  }
  schedule();
}

}  // namespace tensorwire::transport
