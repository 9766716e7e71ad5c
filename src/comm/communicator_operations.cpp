// The collectives of a communicator: arguments, memory, and the operation under way. Messages between two ranks are in
// communicator_exchange.cpp.
#include <fmt/format.h>

#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/communicator_state.hpp"

namespace tensorwire::comm {

namespace {

using collective::Collective;

/// A look at the clock and the group costs some 30 ns: once in so many polls that found nothing.
constexpr std::uint32_t kIdlePollsPerWatch = 16;

/// As a collective call; messages have calls of their own.
bool callable(Collective collective) noexcept {
  return collective >= Collective::kAllReduce && collective <= Collective::kBarrier &&
         collective != Collective::kSendRecv;
}

/// Where the input lies in the output, or the output in the input, when they are in place: in elements.
struct Alias {
  std::uint64_t of_input = 0, of_output = 0;
};
Alias alias_of(const collective::Shape& shape, std::uint32_t rank) noexcept {
  if (shape.collective == Collective::kReduceScatter) return {0, rank * shape.count};
  if (shape.collective == Collective::kAllGather) return {rank * shape.count, 0};
  return {};
}

bool is_in_place(const Call& call, const collective::Shape& shape, std::uint32_t rank) noexcept {
  const Alias alias = alias_of(shape, rank);
  const std::size_t element = element_bytes(shape.dtype);
  return call.in != nullptr && static_cast<const std::byte*>(call.in) + alias.of_output * element ==
                                   static_cast<const std::byte*>(call.out) + alias.of_input * element;
}

collective::Shape shape_of(const Call& call, std::uint32_t ranks) noexcept {
  collective::Shape shape;
  shape.ranks = ranks;
  shape.count = call.count;
  shape.dtype = call.dtype;
  shape.op = call.op;
  shape.collective = call.collective;
  shape.root = static_cast<std::uint16_t>(call.root);
  return shape;
}

}  // namespace

bool Communicator::State::may_begin(Collective collective) noexcept {
  if (broken_) return false;
  if (operation_.under_way) return refuse("another operation is under way");
  operation_.collective = collective;
  if (abort_is_asked()) return fail(CommErrorKind::kAborted, -1, "aborted by a request");
  return true;
}

bool Communicator::State::begin(const Call& call) noexcept try {
  if (!may_begin(call.collective)) return false;
  if (const auto problem = argument_problem(call)) return refuse(*problem);
  if (runner_->idle()) programs_->trim();

  const collective::Shape shape = shape_of(call, config_.ranks);
  collective::BuildOptions options;
  options.counts = call.counts;
  const collective::Extent extent = collective::extent(shape, config_.rank, options);
  const bool reads = call.collective != Collective::kBroadcast || static_cast<int>(config_.rank) == call.root;
  operation_ = Operation{};
  operation_.collective = call.collective;
  operation_.programs = &programs_->get(shape, reads && is_in_place(call, shape, config_.rank), call.counts, *runner_);
  operation_.input = reads ? static_cast<const std::byte*>(call.in) : nullptr;
  operation_.output = static_cast<std::byte*>(call.out);
  operation_.bytes = std::max(extent.input, extent.output) * element_bytes(call.dtype);
  register_memory(extent.input * element_bytes(call.dtype), extent.output * element_bytes(call.dtype));
  operation_.last_segment = runner_->begun() + operation_.programs->cut.segments;
  operation_.under_way = true;
  observe(shape, operation_.programs->algorithm, operation_sequence_, operation_.programs->signature_count);
  begin_segments();
  return true;
} catch (const std::exception& error) {
  return fail(CommErrorKind::kInternal, -1, error.what());
}

std::optional<std::string> Communicator::State::argument_problem(const Call& call) const {
  if (!callable(call.collective)) return "there is no such collective";
  if (!known(call.dtype)) return "the element type is unknown";
  if (!known(call.op)) return "the operator is unknown";
  if (options_.moves_only &&
      (call.collective == Collective::kAllReduce || call.collective == Collective::kReduceScatter)) {
    return "this communicator only moves";
  }
  if (call.root < 0 || static_cast<std::uint32_t>(call.root) >= config_.ranks) return "there is no such root";
  if (call.count > collective::kMostCount / config_.ranks) return "the count is too large";
  if (!call.counts.empty()) {
    if (call.counts.size() != std::size_t{config_.ranks} * config_.ranks)
      return "it needs a count for each pair of ranks";
    for (const std::uint64_t count : call.counts) {
      if (count > call.count) return "one of the counts is larger than the largest";
    }
  }
  const collective::Shape shape = shape_of(call, config_.ranks);
  const collective::Extent extent = extent_of(call);
  if ((extent.input != 0 && call.in == nullptr) || (extent.output != 0 && call.out == nullptr)) {
    return "a buffer is null";
  }
  const auto in_at = reinterpret_cast<std::uintptr_t>(call.in);
  const auto out_at = reinterpret_cast<std::uintptr_t>(call.out);
  const std::uint64_t in_bytes = extent.input * element_bytes(call.dtype);
  const std::uint64_t out_bytes = extent.output * element_bytes(call.dtype);
  if (in_at + in_bytes < in_at || out_at + out_bytes < out_at) return "the count is too large";
  if (in_bytes == 0 || out_bytes == 0) return std::nullopt;
  const bool overlap = in_at < out_at + out_bytes && out_at < in_at + in_bytes;
  if (!overlap) return std::nullopt;
  if (!call.counts.empty()) return "input and output overlap; where blocks differ in size they must be disjoint";
  if (is_in_place(call, shape, config_.rank)) return std::nullopt;
  return "input and output overlap in part; they may be in place or disjoint";
}

collective::Extent Communicator::State::extent_of(const Call& call) const {
  collective::BuildOptions options;
  options.counts = call.counts;
  collective::Extent extent = collective::extent(shape_of(call, config_.ranks), config_.rank, options);
  if (call.collective == Collective::kBroadcast && static_cast<int>(config_.rank) != call.root) extent.input = 0;
  return extent;
}

/// Memory that cannot be registered is staged: copied to, or from, memory that can.
void Communicator::State::register_memory(std::uint64_t input_bytes, std::uint64_t output_bytes) {
  const CachedPrograms& programs = *operation_.programs;
  if (programs.moves_input && input_bytes != 0) {
    operation_.input = staging_.take_input(*link_, operation_.input, input_bytes,
                                           "an all-to-all in place, too large for slots, overwrites what has not left");
  }
  if (programs.reads_input && input_bytes != 0) {
    try {
      operation_.input_key = link_->key_of(operation_.input, input_bytes);
    } catch (const Error& error) {
      operation_.input = staging_.take_input(*link_, operation_.input, input_bytes, error.what());
      operation_.input_key = link_->key_of(operation_.input, input_bytes);
    }
  }
  if (!programs.shares_output || output_bytes == 0) return;
  UserOutput output;
  try {
    output = link_->output_of(operation_.output, output_bytes);
  } catch (const Error& error) {
    operation_.staged_for = std::exchange(operation_.output, staging_.output(*link_, output_bytes, error.what()));
    operation_.staged_bytes = output_bytes;
    output = link_->output_of(operation_.output, output_bytes);
  }
  operation_.output_key = output.key;
  operation_.output_window = output.window;
}

void Communicator::State::observe(const collective::Shape& shape, collective::Algorithm algorithm, std::uint64_t number,
                                  std::uint64_t count) noexcept {
  const Ps now = monotonic_now();
  board_.begin(
      collective::signature_of(shape, algorithm, config_.communicator, static_cast<std::uint32_t>(number), count),
      operation_.bytes, now);
  operation_.observed = observer_->begin(info_of(operation_sequence_ + exchanges_, shape, algorithm), now);
}

bool Communicator::State::finish() noexcept {
  Waiter waiter{options_.wait, *link_};
  for (;;) {
    switch (advance()) {
      case Progress::kDone:
        return true;
      case Progress::kFailed:
        return false;
      case Progress::kWorked:
        waiter.reset();
        break;
      case Progress::kIdle:
        waiter.pause();
        break;
    }
  }
}

Progress Communicator::State::advance() noexcept {
  if (broken_) return Progress::kFailed;
  if (runner_->error()) {
    fail_by_runner();
    return Progress::kFailed;
  }
  if (is_over()) {
    end_operation();
    return Progress::kDone;
  }
  const int count = link_->poll(events_);
  if (count < 0) {
    fail_by_link();
    return Progress::kFailed;
  }
  if (count > 0) {
    take_events(count);
    begin_segments();
    return Progress::kWorked;
  }
  const bool may_sleep = options_.wait == WaitPolicy::kBlock;
  if ((may_sleep || operation_.idle_polls % kIdlePollsPerWatch == 0) && !watch()) return Progress::kFailed;
  ++operation_.idle_polls;
  return Progress::kIdle;
}

bool Communicator::State::is_over() const noexcept {
  if (operation_.programs != nullptr) return runner_->completed() >= operation_.last_segment;
  return runner_->idle() && unfinished_stream() == nullptr;
}

void Communicator::State::end_operation() noexcept {
  operation_.under_way = false;
  const Ps now = monotonic_now();
  board_.end(now);
  observer_->end(operation_.observed, now, operation_.idle_since, last_arrival_peer_);
  if (operation_.programs == nullptr) {
    ++exchanges_;
  } else {
    ++operation_sequence_;
  }
  bytes_moved_ += operation_.bytes;
  if (operation_.staged_for != nullptr) staging_.give_output(operation_.staged_for, 0, operation_.staged_bytes);
  end_streams();
  if (operation_.programs == nullptr || operation_.programs->owes_acknowledgements) look_once_more();
}

/// Where nothing travels back, an operation of a peer is over when our HCA has acknowledged what it wrote out of its
/// user's buffer, and an HCA in software may keep the acknowledgement for our next call. What this look finds belongs
/// to later operations.
void Communicator::State::look_once_more() noexcept {
  const int count = link_->poll(events_);
  if (count > 0) take_events(count);
}

void Communicator::State::begin_segments() noexcept {
  if (operation_.programs == nullptr) return begin_stream_segments();
  const CachedPrograms& programs = *operation_.programs;
  const collective::Segmentation& cut = programs.cut;
  while (operation_.segments_begun < cut.segments && runner_->can_begin()) {
    const std::uint64_t offset = programs.offset_of(operation_.segments_begun);
    collective::Segment segment;
    segment.program = &programs.of_segment(operation_.segments_begun++);
    // A rank that only receives may have no input, one that only sends no output.
    if (operation_.input != nullptr) segment.input = operation_.input + offset;
    if (operation_.output != nullptr) segment.output = operation_.output + offset;
    segment.input_key = operation_.input_key;
    segment.operation_sequence = operation_sequence_;
    segment.operation_count = programs.signature_count;
    segment.output_key = operation_.output_key;
    segment.output_window = operation_.output_window;
    segment.output_window.offset += offset;
    runner_->begin(segment);
  }
  runner_->flush_credit();
}

void Communicator::State::take_events(int count) noexcept {
  for (int i = 0; i < count; ++i) {
    const LinkEvent& event = events_[static_cast<std::size_t>(i)];
    const Ps begun = trace_ != nullptr ? monotonic_now() : 0;
    if (event.kind == LinkEventKind::kArrival) {
      last_arrival_peer_ = event.peer;
      runner_->on_arrival(event.peer, event.immediate, event.in_place);
    } else {
      --user_writes_;
      runner_->on_sent(event.token);
    }
    if (trace_ != nullptr) trace_->on_event(event, begun);
  }
}

std::string Communicator::State::operation_name() const {
  return fmt::format("{} {}", name_of(operation_.collective),
                     operation_.collective == Collective::kSendRecv ? exchanges_ : operation_sequence_);
}

}  // namespace tensorwire::comm
