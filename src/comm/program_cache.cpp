#include "comm/program_cache.hpp"

#include <algorithm>

namespace tensorwire::comm {

namespace {

constexpr std::size_t kMostEntries = 256;

bool reads_input(const collective::Program& program) noexcept {
  return std::ranges::any_of(program.steps, [](const collective::Step& step) {
    return step.kind == collective::StepKind::kWrite && step.source.place == collective::Place::kInput &&
           step.bytes != 0;
  });
}

}  // namespace

const CachedPrograms& ProgramCache::get(const collective::Shape& shape, bool in_place, collective::Runner& runner) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::size_t at = (last_ + i) % entries_.size();
    if (entries_[at]->shape != shape || entries_[at]->in_place != in_place) continue;
    last_ = at;
    return *entries_[at];
  }
  auto entry = std::make_unique<CachedPrograms>();
  entry->shape = shape;
  entry->in_place = in_place;
  entry->algorithm = collective::choose(shape, thresholds_);
  entry->cut = collective::split(entry->algorithm, shape, slot_payload_bytes_);
  entry->full = build(*entry, 0);
  entry->last = build(*entry, entry->cut.segments - 1);
  entry->reads_input = reads_input(entry->full) || reads_input(entry->last);
  runner.reserve(entry->full);
  runner.reserve(entry->last);
  entries_.push_back(std::move(entry));
  last_ = entries_.size() - 1;
  return *entries_.back();
}

collective::Program ProgramCache::build(const CachedPrograms& entry, std::uint64_t segment) const {
  collective::BuildOptions options;
  options.source = collective::choose_source(entry.shape, thresholds_, entry.in_place);
  return collective::build_segment(entry.shape, entry.algorithm, rank_, options, entry.cut, segment);
}

void ProgramCache::trim() noexcept {
  if (entries_.size() <= kMostEntries) return;
  entries_.clear();
  last_ = 0;
}

}  // namespace tensorwire::comm
