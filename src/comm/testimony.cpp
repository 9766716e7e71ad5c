#include "comm/testimony.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

namespace tensorwire::comm {

namespace {

using collective::Collective;
using collective::Heard;
using collective::Signature;

std::string name_of_operation(Collective collective, std::uint32_t number) {
  return fmt::format("{} {}", name_of(collective), number);
}

struct Vote {
  int rank;
  Signature signature;
};

/// Those who took part in one operation, in classes of equal calls.
std::vector<std::vector<Vote>> classes_of(const std::vector<Vote>& votes) {
  std::vector<std::vector<Vote>> classes;
  for (const Vote& vote : votes) {
    const auto same = [&](const auto& one) { return one.front().signature == vote.signature; };
    const auto found = std::ranges::find_if(classes, same);
    (found != classes.end() ? *found : classes.emplace_back()).push_back(vote);
  }
  return classes;
}

/// Whether the most frequent call remains it, whatever the `missing` ranks will call.
bool is_settled(const std::vector<std::vector<Vote>>& classes, std::size_t missing) {
  std::vector<std::size_t> sizes;
  for (const auto& one : classes) sizes.push_back(one.size());
  std::ranges::sort(sizes, std::ranges::greater{});
  return missing == 0 || sizes[0] > sizes[1] + missing;
}

bool contains(const std::vector<Vote>& votes, int rank) {
  return std::ranges::find(votes, rank, &Vote::rank) != votes.end();
}

/// Messages between two ranks are numbered by pair and compared by nobody else.
std::map<std::uint32_t, std::vector<Vote>> votes_by_number(std::span<const Testimony> all) {
  std::map<std::uint32_t, std::vector<Vote>> votes;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].report) continue;
    for (const Signature& signature : all[rank].report->recent) {
      if (signature.collective == Collective::kSendRecv) continue;
      votes[signature.sequence].push_back({static_cast<int>(rank), signature});
    }
  }
  return votes;
}

std::string disagreement_line(const Disagreement& found, int self, bool self_is_right) {
  const collective::SignatureField field = difference(found.right, found.theirs);
  const std::string right = field_text(found.right, field);
  const std::string theirs = field_text(found.theirs, field);
  if (found.culprit == self) {
    return fmt::format("this rank disagrees with rank {} on the {}: {} here, {} there", found.witness, name_of(field),
                       theirs, right);
  }
  const std::string where = self_is_right ? "here" : fmt::format("at rank {}", found.witness);
  return fmt::format("rank {} disagrees on the {}: {} there, {} {}", found.culprit, name_of(field), theirs, right,
                     where);
}

std::string heard_text(const Heard& heard) {
  return fmt::format("the last message from it was of {}", name_of_operation(heard.collective, heard.number));
}

std::string act_text(const Testimony& of) {
  const RankReport& report = *of.report;
  const std::string ago = seconds_text(report.ago + of.age);
  if (report.recent.empty()) return "it has called nothing yet";
  const Signature& last = report.recent.back();
  const std::string what =
      fmt::format("{} ({} bytes)", name_of_operation(last.collective, last.sequence), report.bytes);
  switch (report.state) {
    case RankReport::State::kBetween:
      return fmt::format("it finished {} {} ago and has called nothing since", what, ago);
    case RankReport::State::kInOperation:
      return fmt::format("it entered {} {} ago", what, ago);
    case RankReport::State::kFailed:
      return fmt::format("it failed {} ago; its last call was {}", ago, what);
  }
  return {};
}

}  // namespace

std::string seconds_text(Ps duration) { return fmt::format("{:.3g} s", static_cast<double>(duration) / kSecond); }

std::optional<Disagreement> find_disagreement(std::span<const Testimony> all, int self) {
  for (const auto& [number, votes] : votes_by_number(all)) {
    const auto classes = classes_of(votes);
    if (classes.size() < 2) continue;
    const auto weight = [&](const auto& one) { return 2 * one.size() + (contains(one, self) ? 1 : 0); };
    const auto right = std::ranges::max_element(classes, {}, weight);
    const bool self_is_right = contains(*right, self);
    const auto is_wrong = [&](const Vote& vote) { return !contains(*right, vote.rank); };
    // A rank that is in the wrong itself says so before it names others.
    auto culprit = std::ranges::find_if(votes, [&](const Vote& vote) { return vote.rank == self && is_wrong(vote); });
    if (culprit == votes.end()) culprit = std::ranges::find_if(votes, is_wrong);
    Disagreement found{culprit->rank, right->front().rank, culprit->signature, right->front().signature, {}, false};
    found.line = disagreement_line(found, self, self_is_right);
    found.settled = is_settled(classes, all.size() - votes.size());
    return found;
  }
  return std::nullopt;
}

int find_straggler(std::span<const Testimony> all, int self, int waiting_for) {
  if (waiting_for < 0) return -1;
  std::vector<bool> seen(all.size(), false);
  seen[static_cast<std::size_t>(self)] = true;
  for (int rank = waiting_for; rank >= 0 && static_cast<std::size_t>(rank) < all.size();) {
    const Testimony& it = all[static_cast<std::size_t>(rank)];
    const bool waits = it.presence == Testimony::Presence::kPresent && it.report &&
                       it.report->state == RankReport::State::kInOperation && it.report->subject >= 0;
    if (!waits) return rank;
    seen[static_cast<std::size_t>(rank)] = true;
    rank = it.report->subject;
    if (static_cast<std::size_t>(rank) < all.size() && seen[static_cast<std::size_t>(rank)]) break;
  }
  return waiting_for;
}

std::string last_act(std::span<const Testimony> all, int rank, int self, const Heard& heard) {
  const Testimony& it = all[static_cast<std::size_t>(rank)];
  if (it.presence == Testimony::Presence::kAbsent) return "its process answers, but has left this communicator";
  if (it.report && (it.presence == Testimony::Presence::kPresent || !it.report->recent.empty())) {
    std::string text = act_text(it);
    if (it.presence == Testimony::Presence::kSilent) text += ", and does not answer now";
    return text;
  }
  if (heard.any) return "it does not answer; " + heard_text(heard);
  for (std::size_t other = 0; other < all.size(); ++other) {
    const std::optional<RankReport>& report = all[other].report;
    if (static_cast<int>(other) == self || !report || report->subject != rank || !report->heard.any) continue;
    return fmt::format("it does not answer; {}, says rank {}", heard_text(report->heard), other);
  }
  return "it does not answer, and no message came from it";
}

}  // namespace tensorwire::comm
