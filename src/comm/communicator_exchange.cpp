// Messages between two ranks, several at a time. Each message is a stream of segments of one directed pair. A segment
// is begun only when nothing but the transport can hold it up: a send when the peer's slot is free, a receive when its
// message is there. So no stream waits in the runner for a peer's application, none stands in another's way, and the
// order in which two ranks name their messages to different peers does not matter.
//
// Large messages go straight into the receiver's buffer. What each end then waits for is the other's word, which may
// take as long as the other's application likes: it is given, and awaited, before the segment begins (Runner::open).
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/round_up.hpp"
#include "comm/communicator_state.hpp"

namespace tensorwire::comm {

bool Communicator::State::begin(std::span<const Transfer> transfers) noexcept try {
  if (!may_begin(collective::Collective::kSendRecv)) return false;
  if (const auto problem = problem_of_exchange(transfers)) return refuse(*problem);
  if (runner_->idle()) programs_->trim();

  operation_ = Operation{};
  operation_.collective = collective::Collective::kSendRecv;
  streams_.clear();
  staged_sources_ = staged_targets_ = {};
  for (const Transfer& transfer : transfers) {
    const std::uint64_t bytes = transfer.count * element_bytes(transfer.dtype);
    operation_.bytes += bytes;
    (transfer.sends ? staged_sources_ : staged_targets_).room += round_up(bytes, collective::kChunkAlignment);
  }
  for (const Transfer& transfer : transfers) {
    if (static_cast<std::uint32_t>(transfer.peer) != config_.rank) add_stream(transfer);
  }
  copy_to_self(transfers, config_.rank);
  operation_.under_way = true;
  collective::Shape shape;
  shape.ranks = config_.ranks;
  shape.collective = collective::Collective::kSendRecv;
  shape.count = transfers.empty() ? 0 : transfers.front().count;
  shape.dtype = transfers.empty() ? collective::DType::kFloat32 : transfers.front().dtype;
  observe(shape, collective::Algorithm::kDirect, exchanges_, shape.count);
  begin_segments();
  return true;
} catch (const std::exception& error) {
  return fail(CommErrorKind::kInternal, -1, error.what());
}

std::optional<std::string> Communicator::State::argument_problem(const Transfer& transfer) const {
  if (!known(transfer.dtype)) return "the element type is unknown";
  if (transfer.peer < 0 || static_cast<std::uint32_t>(transfer.peer) >= config_.ranks) return "there is no such peer";
  if (transfer.count > collective::kMostCount) return "the count is too large";
  if (transfer.count != 0 && transfer.buffer == nullptr) return "a buffer is null";
  return std::nullopt;
}

std::optional<std::string> Communicator::State::problem_of_exchange(std::span<const Transfer> transfers) const {
  std::vector<const Transfer*> to_self, from_self;
  for (const Transfer& transfer : transfers) {
    if (auto problem = argument_problem(transfer)) return problem;
    if (static_cast<std::uint32_t>(transfer.peer) != config_.rank) continue;
    (transfer.sends ? to_self : from_self).push_back(&transfer);
  }
  const auto alike = [](const Transfer* a, const Transfer* b) { return a->count == b->count && a->dtype == b->dtype; };
  if (!std::ranges::equal(to_self, from_self, alike)) {
    return "what a rank sends to itself it must receive in the same group";
  }
  return std::nullopt;
}

void Communicator::State::copy_to_self(std::span<const Transfer> transfers, std::uint32_t self) noexcept {
  auto next = transfers.begin();
  for (const Transfer& from : transfers) {
    if (static_cast<std::uint32_t>(from.peer) != self || !from.sends) continue;
    const auto receives = [&](const Transfer& t) { return static_cast<std::uint32_t>(t.peer) == self && !t.sends; };
    next = std::find_if(next, transfers.end(), receives);
    const std::size_t bytes = from.count * element_bytes(from.dtype);
    if (bytes != 0) std::memmove(next->buffer, from.buffer, bytes);
    ++next;
  }
}

void Communicator::State::add_stream(const Transfer& transfer) {
  const auto peer = static_cast<std::uint32_t>(transfer.peer);
  collective::Shape shape;
  shape.ranks = config_.ranks;
  shape.collective = collective::Collective::kSendRecv;
  shape.count = transfer.count;
  shape.dtype = transfer.dtype;
  shape.root = static_cast<std::uint16_t>(transfer.sends ? config_.rank : peer);
  shape.peer = static_cast<std::uint16_t>(transfer.sends ? peer : config_.rank);
  Stream stream;
  stream.sends = transfer.sends;
  stream.peer = peer;
  stream.programs = &programs_->get(shape, false, {}, *runner_);
  stream.buffer = static_cast<std::byte*>(transfer.buffer);
  if (transfer.sends && transfer.count != 0) find_source(stream, shape.bytes());
  if (!transfer.sends && stream.programs->shares_output) find_target(stream, shape.bytes());
  stream.sequence = transfer.sends ? sent_to_[peer]++ : got_from_[peer]++;
  streams_.push_back(stream);
}

/// As register_memory: what cannot be registered is copied to memory that can, all of an exchange side by side.
void Communicator::State::find_source(Stream& stream, std::uint64_t bytes) {
  try {
    stream.key = link_->key_of(stream.buffer, bytes);
  } catch (const Error& error) {
    Staged& staged = staged_sources_;
    const std::byte* copy = staging_.take_input(*link_, stream.buffer, bytes, staged.used, staged.room, error.what());
    stream.key = link_->key_of(copy - staged.used, staged.room);
    staged.used += round_up(bytes, collective::kChunkAlignment);
    stream.buffer = const_cast<std::byte*>(copy);  // a sender's is only read
  }
}

void Communicator::State::find_target(Stream& stream, std::uint64_t bytes) {
  try {
    stream.window = link_->output_of(stream.buffer, bytes).window;
  } catch (const Error& error) {
    Staged& staged = staged_targets_;
    std::byte* all = staging_.output(*link_, staged.room, error.what());
    stream.staged_for = std::exchange(stream.buffer, all + staged.used);
    stream.staged_at = staged.used;
    stream.window = link_->output_of(all, staged.room).window;
    stream.window.offset += staged.used;
    staged.used += round_up(bytes, collective::kChunkAlignment);
  }
}

collective::Segment Communicator::State::segment_of(const Stream& stream, std::uint64_t number) const noexcept {
  const CachedPrograms& programs = *stream.programs;
  collective::Segment segment;
  segment.program = &programs.of_segment(number);
  segment.input = segment.output = stream.buffer + programs.offset_of(number);
  segment.input_key = stream.key;
  segment.output_window = stream.window;
  segment.output_window.offset += programs.offset_of(number);
  segment.operation_sequence = stream.sequence;
  segment.operation_count = programs.signature_count;
  return segment;
}

void Communicator::State::begin_stream_segments() noexcept {
  std::ranges::fill(turns_, Turn{});
  for (Stream& stream : streams_) {
    if (stream.opens()) {
      open_segments(stream);
      begin_opened_segments(stream);
    } else {
      begin_segments_through_slots(stream);
    }
  }
  // Peers that no message goes to may wait for the slots of the collective before.
  runner_->flush_credit(true);
}

void Communicator::State::open_segments(Stream& stream) noexcept {
  Turn& turn = turns_[2 * stream.peer + (stream.sends ? 1 : 0)];
  while (turn.to_open && !stream.all_opened() &&
         runner_->can_open(stream.programs->of_segment(stream.segments_opened))) {
    collective::Segment segment = segment_of(stream, stream.segments_opened);
    runner_->open(segment);
    if (stream.segments_opened++ == 0) stream.first_opening = segment.opening;
  }
  turn.to_open = turn.to_open && stream.all_opened();
}

void Communicator::State::begin_opened_segments(Stream& stream) noexcept {
  Turn& turn = turns_[2 * stream.peer + (stream.sends ? 1 : 0)];
  while (turn.to_begin && stream.segments_begun != stream.segments_opened && runner_->can_begin()) {
    collective::Segment segment = segment_of(stream, stream.segments_begun);
    segment.opened = true;
    segment.opening = stream.first_opening + stream.segments_begun;  // nobody else took one in between
    if (!runner_->can_go_on(segment)) break;
    ++stream.segments_begun;
    runner_->begin(segment);
  }
  turn.to_begin = turn.to_begin && stream.all_begun();
}

void Communicator::State::begin_segments_through_slots(Stream& stream) noexcept {
  Turn& both = turns_[2 * stream.peer + (stream.sends ? 1 : 0)];
  // What is sent takes its sequence when it begins; what is received belongs to the next one.
  bool& turn = stream.sends ? both.to_open : both.to_begin;
  const auto ready = [&] { return stream.sends ? runner_->has_room(stream.peer) : runner_->has_arrived(stream.peer); };
  while (turn && !stream.all_begun() && runner_->can_begin() && ready()) {
    runner_->begin(segment_of(stream, stream.segments_begun++));
  }
  turn = turn && stream.all_begun();
}

void Communicator::State::end_streams() noexcept {
  for (const Stream& stream : streams_) {
    if (stream.staged_for == nullptr) continue;
    staging_.give_output(stream.staged_for, stream.staged_at, stream.programs->shape.bytes());
  }
  streams_.clear();
}

void Communicator::State::close_windows() noexcept {
  for (const Stream& stream : streams_) {
    if (!stream.sends && stream.segments_opened != 0) link_->forget(stream.buffer, stream.programs->shape.bytes());
  }
}

const Communicator::State::Stream* Communicator::State::unfinished_stream() const noexcept {
  const auto found = std::ranges::find_if(streams_, [](const Stream& stream) { return !stream.all_begun(); });
  return found == streams_.end() ? nullptr : &*found;
}

collective::Runner::Waiting Communicator::State::waiting_for() const noexcept {
  const collective::Runner::Waiting waiting = runner_->waiting_for();
  if (waiting.peer < config_.ranks) return waiting;
  const Stream* stream = unfinished_stream();
  const bool all_begun = operation_.programs != nullptr ? operation_.segments_begun == operation_.programs->cut.segments
                                                        : stream == nullptr;
  if (all_begun) return waiting;
  const collective::Runner::Waiting to_begin = runner_->waiting_to_begin();
  if (to_begin.peer < config_.ranks || stream == nullptr || !runner_->idle()) return to_begin;
  if (!stream->sends) return {stream->peer, "to send"};
  return {stream->peer,
          stream->segments_opened > stream->segments_begun ? "to receive" : "to receive what was sent before"};
}

}  // namespace tensorwire::comm
