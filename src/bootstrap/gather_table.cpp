#include "bootstrap/gather_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bootstrap/group.hpp"

namespace tensorwire::bootstrap {

std::string_view to_string(CallKind kind) noexcept {
  switch (kind) {
    case CallKind::kAllGather:
      return "all_gather";
    case CallKind::kBroadcast:
      return "broadcast";
    case CallKind::kBarrier:
      return "barrier";
  }
  return "an unknown call";
}

std::string GatherTable::name(int rank) const {
  return fmt::format("rank {} on {}", rank, hosts_[static_cast<std::size_t>(rank)]);
}

std::string GatherTable::objection(const Call& call, int rank, const Contribution& contribution) const {
  if (call.parts[static_cast<std::size_t>(rank)]) {
    return fmt::format("{} came to call {} twice", name(rank), contribution.sequence);
  }
  if (call.kind != contribution.kind || call.root != contribution.root) {
    return fmt::format("the ranks make different calls: {} calls {} (root {}), {} calls {} (root {})", name(call.first),
                       to_string(call.kind), call.root, name(rank), to_string(contribution.kind), contribution.root);
  }
  for (std::size_t other = 0; other < left_.size(); ++other) {
    if (left_[other] && !call.parts[other]) return fmt::format("{} has left the group", name(static_cast<int>(other)));
  }
  return {};
}

GatherTable::Step GatherTable::add(int rank, Contribution contribution) {
  const std::uint64_t sequence = contribution.sequence;
  if (const auto verdict = doomed_.find(sequence); verdict != doomed_.end()) return {{}, verdict->second};

  auto [entry, opened] = calls_.try_emplace(sequence);
  Call& call = entry->second;
  if (opened) call = {contribution.kind, contribution.root, rank, std::vector<std::optional<Bytes>>(hosts_.size())};
  if (std::string why = objection(call, rank, contribution); !why.empty()) {
    doom(sequence, why);
    return {{}, std::move(why)};
  }
  call.parts[static_cast<std::size_t>(rank)] = std::move(contribution.payload);
  if (!std::ranges::all_of(call.parts, [](const auto& part) { return part.has_value(); })) return {};

  std::vector<Bytes> parts;
  std::size_t total = 0;
  for (auto& part : call.parts) {
    total += part->size();
    parts.push_back(*std::move(part));
  }
  calls_.erase(entry);
  if (total > kMaxGathered) {
    std::string why = fmt::format("{} bytes of all ranks together are more than {}", total, kMaxGathered);
    doom(sequence, why);
    return {{}, std::move(why)};
  }
  return {std::move(parts), {}};
}

std::vector<int> GatherTable::missing(std::uint64_t sequence) const {
  std::vector<int> ranks;
  const auto entry = calls_.find(sequence);
  if (entry == calls_.end()) return ranks;
  for (std::size_t rank = 0; rank < entry->second.parts.size(); ++rank) {
    if (!entry->second.parts[rank]) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

void GatherTable::doom(std::uint64_t sequence, const std::string& why) {
  calls_.erase(sequence);
  doomed_.try_emplace(sequence, why);
}

std::vector<Verdict> GatherTable::mark_left(int rank) {
  left_[static_cast<std::size_t>(rank)] = true;
  std::vector<Verdict> verdicts;
  for (const auto& [sequence, call] : calls_) {
    if (call.parts[static_cast<std::size_t>(rank)]) continue;
    verdicts.push_back(
        {sequence, fmt::format("{} left the group without coming to {}", name(rank), to_string(call.kind))});
  }
  for (const Verdict& verdict : verdicts) doom(verdict.sequence, verdict.text);
  return verdicts;
}

}  // namespace tensorwire::bootstrap
