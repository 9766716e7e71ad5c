#include "comm/program_cache.hpp"

#include <algorithm>

namespace tensorwire::comm {

namespace {

constexpr std::size_t kMostEntries = 256;

bool writes_from(const collective::Program& program, collective::Place place) noexcept {
  return std::ranges::any_of(program.steps, [place](const collective::Step& step) {
    return step.kind == collective::StepKind::kWrite && step.source.place == place && step.bytes != 0;
  });
}

bool reads_input(const collective::Program& program) noexcept {
  return writes_from(program, collective::Place::kInput);
}

bool shares_output(const collective::Program& program) noexcept {
  return program.peers_write_output || writes_from(program, collective::Place::kOutput);
}

}  // namespace

const CachedPrograms& ProgramCache::get(const collective::Shape& shape, bool in_place,
                                        std::span<const std::uint64_t> counts, collective::Runner& runner) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::size_t at = (last_ + i) % entries_.size();
    const CachedPrograms& entry = *entries_[at];
    if (entry.shape != shape || entry.in_place != in_place || !std::ranges::equal(entry.counts, counts)) continue;
    last_ = at;
    return entry;
  }
  auto entry = std::make_unique<CachedPrograms>();
  entry->shape = shape;
  entry->in_place = in_place;
  entry->counts.assign(counts.begin(), counts.end());
  build(*entry);
  for (const collective::Program& program : entry->programs) runner.reserve(program);
  entries_.push_back(std::move(entry));
  last_ = entries_.size() - 1;
  return *entries_.back();
}

void ProgramCache::build(CachedPrograms& entry) const {
  collective::BuildOptions options;
  options.counts = entry.counts;
  options.source = collective::choose_source(entry.shape, thresholds_, entry.in_place);
  // A message that was copied to a send slot would hold it until the peer has received it: streams must not wait so.
  if (entry.shape.collective == collective::Collective::kSendRecv) options.source = collective::WriteSource::kInput;
  entry.algorithm = collective::choose(entry.shape, thresholds_, order_);
  // Which algorithm it is must not depend on what one rank alone knows, as that it is in place.
  entry.moves_input = entry.in_place && entry.shape.collective == collective::Collective::kAllToAll &&
                      entry.algorithm == collective::Algorithm::kWindow;
  if (entry.moves_input) options.source = collective::WriteSource::kInput;
  entry.cut = collective::split(entry.algorithm, entry.shape, slot_payload_bytes_, options);
  entry.signature_count = collective::signature_count(entry.shape, options);
  const std::uint64_t segments = entry.cut.segments;
  const bool alike = collective::segments_are_alike(options) && segments > 2;
  for (std::uint64_t segment = 0; segment < segments; segment += alike ? segments - 1 : 1) {
    entry.programs.push_back(
        collective::build_segment(entry.shape, entry.algorithm, rank_, options, entry.cut, segment));
    if (hook_) hook_(entry.programs.back());
  }
  entry.reads_input = std::ranges::any_of(entry.programs, reads_input);
  entry.shares_output = std::ranges::any_of(entry.programs, shares_output);
  // In two shots what travels back last carries it; small one-shots are sent from memory of the library, whether in
  // place or not, which no rank waits for.
  const bool in_one_shot = entry.algorithm == collective::Algorithm::kOneShot;
  const bool copied_in = options.source == collective::WriteSource::kSendSlot;
  entry.owes_acknowledgements = entry.algorithm != collective::Algorithm::kTwoShot && !(in_one_shot && copied_in);
}

void ProgramCache::trim() noexcept {
  if (entries_.size() <= kMostEntries) return;
  entries_.clear();
  last_ = 0;
}

}  // namespace tensorwire::comm
