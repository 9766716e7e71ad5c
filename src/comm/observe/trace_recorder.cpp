#include "comm/observe/trace_recorder.hpp"

#include "base/clock.hpp"

namespace tensorwire::comm {

std::uint64_t TraceRecorder::Counted::full(std::uint32_t low_bits) noexcept {
  // Messages may overtake one another within the window, which is far below half the modulus.
  const std::uint32_t ahead = collective::sequence_distance(next, low_bits);
  const bool behind = ahead >= collective::kSequenceModulus / 2;
  if (behind && next < collective::kSequenceModulus - ahead) return low_bits;
  const std::uint64_t value = behind ? next - (collective::kSequenceModulus - ahead) : next + ahead;
  next = std::max(next, value + 1);
  return value;
}

TraceRecorder::TraceRecorder(const Identity& who, std::size_t events)
    : who_(who), ring_(events), sent_(who.ranks), received_(who.ranks) {}

TraceEvent& TraceRecorder::record(TraceKind kind, Ps begun, Ps ended) noexcept {
  TraceEvent& event = ring_[recorded_++ % ring_.size()];
  event = TraceEvent{};
  event.kind = kind;
  event.begun = begun;
  event.ended = ended;
  event.operation = operation_;
  return event;
}

void TraceRecorder::end_operation(const OperationInfo& info, Ps begun, Ps ended, Ps waited, std::uint32_t waited_for,
                                  bool failed) noexcept {
  TraceEvent& event = record(TraceKind::kOperation, begun, ended);
  event.operation = info.number;
  event.number = info.count;
  event.bytes = info.bytes;
  event.waited = waited;
  event.peer = waited_for;
  event.failed = failed;
  event.collective = info.collective;
  event.algorithm = info.algorithm;
  event.dtype = info.dtype;
  event.op = info.op;
}

void TraceRecorder::begin_work() noexcept { work_begun_ = monotonic_now(); }

void TraceRecorder::step_done(const collective::Segment& segment, std::uint64_t number, std::uint16_t index) noexcept {
  const collective::Step& step = segment.program->steps[index];
  const bool is_work = step.kind == collective::StepKind::kCopy || step.kind == collective::StepKind::kReduce;
  const Ps now = monotonic_now();
  TraceEvent& event = record(TraceKind::kStep, is_work ? work_begun_ : now, now);
  event.number = number;
  event.step = index;
  event.step_kind = step.kind;
  event.peer = step.peer;
  event.message = step.message;
  event.bytes = step.bytes;
}

void TraceRecorder::take_immediate(TraceEvent& event, std::uint32_t bits, std::vector<Counted>& counts) noexcept {
  const collective::Immediate immediate = collective::Immediate::unpack(bits);
  event.message = static_cast<std::uint8_t>(immediate.message);
  if (immediate.has_sequence()) event.number = counts[event.peer].full(immediate.sequence);
}

void TraceRecorder::on_write(const collective::WriteRequest& request, Ps begun) noexcept {
  TraceEvent& event = record(TraceKind::kWrite, begun, monotonic_now());
  event.peer = request.peer;
  for (const collective::Piece& piece : request.pieces) event.bytes += piece.bytes;
  take_immediate(event, request.immediate, sent_);
}

void TraceRecorder::on_event(const LinkEvent& taken, Ps begun) noexcept {
  const bool arrival = taken.kind == LinkEventKind::kArrival;
  TraceEvent& event = record(arrival ? TraceKind::kArrival : TraceKind::kSent, begun, monotonic_now());
  event.peer = taken.peer;
  if (arrival) {
    take_immediate(event, taken.immediate, received_);
  } else {
    event.number = taken.token >> 16;
    event.step = static_cast<std::uint16_t>(taken.token);
  }
}

std::vector<TraceEvent> TraceRecorder::events() const {
  std::vector<TraceEvent> all;
  const std::uint64_t kept = std::min<std::uint64_t>(recorded_, ring_.size());
  all.reserve(kept);
  for (std::uint64_t i = recorded_ - kept; i != recorded_; ++i) all.push_back(ring_[i % ring_.size()]);
  return all;
}

}  // namespace tensorwire::comm
