#include "collective/check_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "collective/check_promise.hpp"

namespace tensorwire::collective {

namespace {

/// Sums of more consecutive ranks than this are printed as "x0 + ... + x63".
constexpr std::size_t kLongRun = 6;

}  // namespace

Expression Expressions::intern(Entry entry) {
  const auto [at, is_new] = known_.try_emplace(entry, static_cast<Expression>(entries_.size()));
  if (is_new) entries_.push_back(std::move(entry));
  return at->second;
}

Expression Expressions::contribution(std::uint32_t plan, std::uint32_t rank) {
  return intern({plan, rank, false, Op::kSum, {}});
}

Expression Expressions::header(std::uint32_t plan, std::uint32_t rank) {
  return intern({plan, rank, true, Op::kSum, {}});
}

Expression Expressions::combine(Op op, const std::vector<Term>& terms) {
  if (terms.size() == 1 && op != Op::kAverage) return terms[0].expression;  // one alone is what it was
  return intern({0, 0, false, op, terms});
}

bool Expressions::is_made_by(Op op, Expression expression) const {
  const Entry& entry = entries_[expression];
  if (entry.terms.empty()) return true;
  const Op of_parts = op == Op::kAverage ? Op::kSum : op;
  return entry.op == op &&
         std::ranges::all_of(entry.terms, [&](const Term& term) { return is_made_by(of_parts, term.expression); });
}

std::string Expressions::text(Expression expression) const {
  const Entry& entry = entries_[expression];
  if (entry.terms.empty()) return fmt::format("{}{}", entry.is_header ? "header of " : "x", entry.rank);
  const char* const between = entry.op == Op::kMax ? ", " : " + ";
  std::string line = entry.op == Op::kSum ? "(" : std::string{name_of(entry.op)} + "(";
  for (std::size_t i = 0; i < entry.terms.size(); ++i) {
    if (i != 0) line += between;
    if (const std::size_t last = end_of_run(entry.terms, i); last >= i + kLongRun) {
      line += text(entry.terms[i].expression) + between + "..." + between;
      i = last;
    }
    line += text(entry.terms[i].expression);
    if (entry.terms[i].shift != 0) line += fmt::format("[{:+}]", entry.terms[i].shift);
  }
  return line + ")";
}

/// The last of the contributions of consecutive ranks that begin with term `first`.
std::size_t Expressions::end_of_run(std::span<const Term> terms, std::size_t first) const {
  std::size_t last = first;
  for (; last + 1 < terms.size() && !is_sum(terms[last].expression) && !is_sum(terms[last + 1].expression) &&
         terms[last + 1].shift == terms[first].shift &&
         entries_[terms[last + 1].expression].rank == entries_[terms[last].expression].rank + 1;
       ++last) {
  }
  return last;
}

Expressions::Leaves Expressions::leaves(Expression expression, std::uint32_t plan) const {
  const Entry& entry = entries_[expression];
  if (entry.terms.empty()) return {{entry.rank}, entry.plan == plan && !entry.is_header};
  Leaves all;
  for (const Term& term : entry.terms) {
    const Leaves part = leaves(term.expression, plan);
    all.ranks.insert(all.ranks.end(), part.ranks.begin(), part.ranks.end());
    all.aligned = all.aligned && part.aligned && term.shift == 0;
  }
  return all;
}

void Region::write(std::uint64_t begin, std::uint64_t end, Value value) {
  if (begin == end) return;
  auto at = std::ranges::upper_bound(ranges_, begin, {}, &Range::end);  // the first that ends behind `begin`
  if (at != ranges_.end() && at->begin < begin) {
    const Range whole = *at;
    at->end = begin;
    at = ranges_.insert(at + 1, {begin, whole.end, whole.value.at(begin - whole.begin)});
  }
  auto behind = at;
  while (behind != ranges_.end() && behind->end <= end) ++behind;
  if (behind != ranges_.end() && behind->begin < end) {
    behind->value = behind->value.at(end - behind->begin);
    behind->begin = end;
  }
  at = ranges_.erase(at, behind);
  at = ranges_.insert(at, {begin, end, value});
  const auto continues = [](const Range& left, const Range& right) {
    return left.end == right.begin && left.value.at(left.end - left.begin) == right.value;
  };
  if (at + 1 != ranges_.end() && continues(*at, *(at + 1))) {
    at->end = (at + 1)->end;
    ranges_.erase(at + 1);
  }
  if (at != ranges_.begin() && continues(*(at - 1), *at)) {
    (at - 1)->end = at->end;
    ranges_.erase(at);
  }
}

std::vector<Region::Range> Region::read(std::uint64_t begin, std::uint64_t end) const {
  std::vector<Range> found;
  for (auto at = std::ranges::upper_bound(ranges_, begin, {}, &Range::end); at != ranges_.end() && at->begin < end;
       ++at) {
    const std::uint64_t from = std::max(begin, at->begin);
    found.push_back({from, std::min(end, at->end), at->value.at(from - at->begin)});
  }
  return found;
}

MemoryMap::MemoryMap(const HappensBefore& graph, const CheckOptions& options) : graph_(&graph), options_(&options) {
  const std::uint32_t ranks = graph.ranks();
  first_send_slot_ = 2 * graph.plans() * ranks;
  first_peer_slot_ = first_send_slot_ + ranks * options.send_slots;
  first_head_ = first_peer_slot_ + ranks * ranks * options.depth;
  regions_ = first_head_ + 3 * ranks * ranks * options.depth;
}

MemoryMap::Address MemoryMap::head(Head kind, std::uint32_t owner, std::uint32_t peer, std::uint32_t number) const {
  const std::uint32_t ranks = graph_->ranks();
  const std::uint32_t row = (static_cast<std::uint32_t>(kind) * ranks + owner) * ranks + peer;
  return {first_head_ + row * options_->depth + number % options_->depth, 0};
}

MemoryMap::Address MemoryMap::header_source(std::uint32_t plan, std::uint32_t rank, const Step& write) const {
  if (write.message == kInvitationMessage) {
    return head(Head::kInvitationOut, rank, write.peer, graph_->invitation_number(plan, rank, write.peer));
  }
  if (!graph_->is_opening(plan, rank, write)) return send_header(plan, rank);
  return head(Head::kAnnouncementOut, rank, write.peer, graph_->pair_sequence(plan, rank, write.peer));
}

MemoryMap::Address MemoryMap::header_target(std::uint32_t plan, std::uint32_t rank, const Step& write) const {
  if (write.message != kInvitationMessage) return peer_header(plan, write.peer, rank);
  return head(Head::kInvitationIn, write.peer, rank, graph_->invitation_number(plan, rank, write.peer));
}

MemoryMap::Address MemoryMap::header_from(std::uint32_t plan, std::uint32_t rank, std::uint32_t peer) const {
  if (!graph_->is_invited(plan, rank, peer)) return peer_header(plan, rank, peer);
  return head(Head::kInvitationIn, rank, peer, graph_->invitation_number(plan, peer, rank));
}

std::uint32_t MemoryMap::slot_region(std::uint32_t plan, std::uint32_t owner, std::uint32_t writer) const {
  const std::uint32_t slot = graph_->pair_sequence(plan, writer, owner) % options_->depth;
  return first_peer_slot_ + (owner * graph_->ranks() + writer) * options_->depth + slot;
}

MemoryMap::Address MemoryMap::address(std::uint32_t plan, std::uint32_t rank, const Location& location) const {
  const std::uint32_t user = 2 * (plan * graph_->ranks() + rank);
  switch (location.place) {
    case Place::kInput:
    case Place::kOutput: {
      const bool output = location.place == Place::kOutput;
      if (!options_->in_place) return {user + (output ? 1U : 0U), location.offset};
      return {user, location.offset + limits(plan, rank, location.place).begin};
    }
    case Place::kSendSlot: {
      const Address header = send_header(plan, rank);
      return {header.region, kSlotHeaderBytes + location.offset};
    }
    case Place::kPeerSlot:
      return {slot_region(plan, rank, location.peer), kSlotHeaderBytes + location.offset};
    case Place::kPeerOutput:
      return address(plan, location.peer, {Place::kOutput, 0, location.offset});
    case Place::kNone:
      break;
  }
  return {};
}

MemoryMap::Address MemoryMap::target(std::uint32_t plan, std::uint32_t rank, const Step& write) const {
  if (write.target.place != Place::kPeerSlot) return address(plan, rank, write.target);
  return {slot_region(plan, write.peer, rank), kSlotHeaderBytes + write.target.offset};
}

MemoryMap::Address MemoryMap::send_header(std::uint32_t plan, std::uint32_t rank) const {
  return {first_send_slot_ + rank * options_->send_slots + plan % options_->send_slots, 0};
}

MemoryMap::Address MemoryMap::peer_header(std::uint32_t plan, std::uint32_t rank, std::uint32_t peer) const {
  return {slot_region(plan, rank, peer), 0};
}

/// In place, the smaller of the two tensors is this rank's block of the larger one.
MemoryMap::Limits MemoryMap::limits(std::uint32_t plan, std::uint32_t rank, Place place) const {
  if (place == Place::kSendSlot || place == Place::kPeerSlot) {
    return {kSlotHeaderBytes, kSlotHeaderBytes + options_->slot_payload_bytes};
  }
  const Shape& shape = graph_->program(plan, rank).shape;
  const UserTensor tensor = user_tensor(shape, options_->build, rank, place != Place::kInput);
  if (!options_->in_place) return {0, tensor.bytes};
  return {tensor.in_place_offset, tensor.in_place_offset + tensor.bytes};
}

SymbolicExecution::SymbolicExecution(const HappensBefore& graph, const MemoryMap& map)
    : graph_(&graph), map_(&map), memory_(map.regions()) {
  for (std::uint32_t plan = 0; plan < graph.plans(); ++plan) {
    for (std::uint32_t rank = 0; rank < graph.ranks(); ++rank) {
      const MemoryMap::Address input = map.address(plan, rank, {Place::kInput, 0, 0});
      const MemoryMap::Limits limits = map.limits(plan, rank, Place::kInput);
      memory_[input.region].write(limits.begin, limits.end, {expressions_.contribution(plan, rank), 0});
    }
  }
}

std::vector<Region::Range> SymbolicExecution::output(std::uint32_t plan, std::uint32_t rank) const {
  const MemoryMap::Address start = map_->address(plan, rank, {Place::kOutput, 0, 0});
  const MemoryMap::Limits limits = map_->limits(plan, rank, Place::kOutput);
  auto ranges = memory_[start.region].read(limits.begin, limits.end);
  for (Region::Range& range : ranges) {
    range.begin -= start.offset;
    range.end -= start.offset;
  }
  return ranges;
}

std::optional<Verdict> SymbolicExecution::run() {
  for (const Node node : graph_->ordered()) {
    const NodeName name = graph_->name(node);
    if (name.step == kNoStep) {
      const MemoryMap::Address header = map_->send_header(name.plan, name.rank);
      memory_[header.region].write(0, kSlotHeaderBytes, {expressions_.header(name.plan, name.rank), 0});
      continue;
    }
    const Step& step = graph_->program(name.plan, name.rank).steps[name.step];
    if (auto verdict = outside(node, name.plan, name.rank, step)) return verdict;
    if (auto verdict = execute(node, name.plan, name.rank, step)) return verdict;
  }
  return std::nullopt;
}

std::optional<Verdict> SymbolicExecution::execute(Node node, std::uint32_t plan, std::uint32_t rank, const Step& step) {
  switch (step.kind) {
    case StepKind::kCopy:
      return move(node, map_->address(plan, rank, step.source), map_->address(plan, rank, step.target), step.bytes);
    case StepKind::kWrite:
      if (step.with_signature) {
        const MemoryMap::Address header = map_->header_source(plan, rank, step);
        if (graph_->is_opening(plan, rank, step)) {
          memory_[header.region].write(0, kSlotHeaderBytes, {expressions_.header(plan, rank), 0});
        }
        if (auto verdict = move(node, header, map_->header_target(plan, rank, step), kSlotHeaderBytes)) return verdict;
      }
      if (step.bytes == 0) return std::nullopt;
      return move(node, map_->address(plan, rank, step.source), map_->target(plan, rank, step), step.bytes);
    case StepKind::kReduce:
      return reduce(node, plan, rank, step);
    default:
      return std::nullopt;
  }
}

std::optional<Verdict> SymbolicExecution::move(Node node, MemoryMap::Address from, MemoryMap::Address to,
                                               std::uint64_t bytes) {
  std::uint64_t at = from.offset;
  for (const Region::Range& range : memory_[from.region].read(from.offset, from.offset + bytes)) {
    if (range.begin != at) break;
    memory_[to.region].write(to.offset + (range.begin - from.offset), to.offset + (range.end - from.offset),
                             range.value);
    at = range.end;
  }
  if (at == from.offset + bytes) return std::nullopt;
  return counter_example(*graph_, node, fmt::format("byte {} of what it reads was never written", at - from.offset));
}

std::optional<Verdict> SymbolicExecution::reduce(Node node, std::uint32_t plan, std::uint32_t rank, const Step& step) {
  const Program& program = graph_->program(plan, rank);
  const std::uint64_t element = element_bytes(program.shape.dtype);
  std::vector<std::vector<Region::Range>> parts;
  std::vector<std::uint64_t> starts;
  for (const Location& operand : program.operands_of(step)) {
    const MemoryMap::Address from = map_->address(plan, rank, operand);
    parts.push_back(memory_[from.region].read(from.offset, from.offset + step.bytes));
    starts.push_back(from.offset);
  }
  if (parts.empty()) return counter_example(*graph_, node, "it adds up nothing");
  std::vector<std::size_t> at(parts.size(), 0);
  struct Sum {
    std::uint64_t begin, end;
    Value value;
  };
  std::vector<Sum> sums;
  for (std::uint64_t done = 0; done < step.bytes;) {
    std::uint64_t end = step.bytes;
    std::vector<Expressions::Term> terms;
    std::int64_t base = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      while (at[i] < parts[i].size() && parts[i][at[i]].end - starts[i] <= done) ++at[i];
      if (at[i] == parts[i].size() || parts[i][at[i]].begin - starts[i] > done) {
        return counter_example(*graph_, node, fmt::format("byte {} of operand {} was never written", done, i));
      }
      const Region::Range& range = parts[i][at[i]];
      end = std::min(end, range.end - starts[i]);
      const Value value = range.value.at(done - (range.begin - starts[i]));
      if (i == 0) base = value.base;
      terms.push_back({value.expression, value.base - base});
    }
    if (done % element != 0 || end % element != 0) {
      return counter_example(*graph_, node, "it adds up parts of elements");
    }
    sums.push_back({done, end, {expressions_.combine(step.op, terms), base}});
    done = end;
  }
  for (const Location& target : {step.target, step.second_target}) {
    if (target.place == Place::kNone) continue;
    const MemoryMap::Address to = map_->address(plan, rank, target);
    for (const Sum& sum : sums) memory_[to.region].write(to.offset + sum.begin, to.offset + sum.end, sum.value);
  }
  return std::nullopt;
}

std::optional<Verdict> SymbolicExecution::outside(Node node, std::uint32_t plan, std::uint32_t rank,
                                                  const Step& step) const {
  const auto fits = [&](std::uint32_t owner, const Location& location) {
    if (location.place == Place::kNone || step.bytes == 0) return true;
    if (location.place == Place::kPeerSlot || location.place == Place::kPeerOutput) {
      if (location.peer >= graph_->ranks()) return false;
    }
    const MemoryMap::Limits limits = map_->limits(plan, owner, location.place);
    return location.offset + step.bytes <= limits.end - limits.begin;
  };
  const auto refuse = [&] { return counter_example(*graph_, node, "it touches memory outside of what is there"); };
  if (step.kind == StepKind::kWrite) {
    const bool to_slot = step.target.place == Place::kPeerSlot;
    if ((!to_slot && step.target.place != Place::kPeerOutput) || step.target.peer != step.peer) return refuse();
    if (!fits(rank, step.source) || !fits(step.peer, step.target)) return refuse();
    return std::nullopt;
  }
  const Program& program = graph_->program(plan, rank);
  bool all_fit = fits(rank, step.source) && fits(rank, step.target) && fits(rank, step.second_target);
  for (const Location& operand : program.operands_of(step)) all_fit = all_fit && fits(rank, operand);
  if (!all_fit) return refuse();
  return std::nullopt;
}

}  // namespace tensorwire::collective
