#include "comm/program_cache.hpp"

#include <algorithm>

namespace tensorwire::comm {

namespace {

constexpr std::size_t kMostEntries = 256;

bool same(const collective::Shape& a, const collective::Shape& b) noexcept {
  return a.count == b.count && a.dtype == b.dtype && a.op == b.op && a.ranks == b.ranks;
}

bool reads_input(const collective::Program& program) noexcept {
  return std::ranges::any_of(program.steps, [](const collective::Step& step) {
    return step.kind == collective::StepKind::kWrite && step.source.place == collective::Place::kInput &&
           step.bytes != 0;
  });
}

}  // namespace

const CachedPrograms& ProgramCache::get(const collective::Shape& shape, collective::Runner& runner) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::size_t at = (last_ + i) % entries_.size();
    if (!same(entries_[at]->shape, shape)) continue;
    last_ = at;
    return *entries_[at];
  }
  auto entry = std::make_unique<CachedPrograms>();
  entry->shape = shape;
  entry->algorithm = collective::choose(shape, thresholds_);
  entry->cut = collective::split(entry->algorithm, shape, slot_payload_bytes_);
  collective::Shape segment = shape;
  segment.count = entry->cut.segment_count;
  entry->full = collective::build(entry->algorithm, segment, rank_);
  segment.count = entry->cut.last_count;
  entry->last = collective::build(entry->algorithm, segment, rank_);
  entry->reads_input = reads_input(entry->full) || reads_input(entry->last);
  runner.reserve(entry->full);
  runner.reserve(entry->last);
  entries_.push_back(std::move(entry));
  last_ = entries_.size() - 1;
  return *entries_.back();
}

void ProgramCache::trim() noexcept {
  if (entries_.size() <= kMostEntries) return;
  entries_.clear();
  last_ = 0;
}

}  // namespace tensorwire::comm
