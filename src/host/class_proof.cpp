#include "host/class_proof.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tensorwire::host {
namespace {

// Ethernet with its check sequence, UDP, base transport header, invariant CRC.
constexpr std::uint64_t kFraming = 14 + 4 + 8 + 12 + 4;
constexpr std::uint64_t kIpv4 = 20;
constexpr std::uint64_t kIpv6 = 40;
/// Of the burst; a priority that moved by less is not worth a word.
constexpr double kWorthAWord = 0.01;

double seconds(Ps duration) { return static_cast<double>(duration) / static_cast<double>(kSecond); }

double percent(double share) { return 100.0 * share; }

struct Above {
  double idle_per_second = 0;
  double bytes = 0;
};

/// What a priority moved by beyond its idle rate; nothing where the driver does not count it.
std::optional<Above> above_idle(const BurstEnd& end, unsigned priority, BytesOf bytes) {
  const auto idle = end.idle.priorities[priority].*bytes;
  const auto burst = end.burst.priorities[priority].*bytes;
  if (!idle || !burst || end.idle.elapsed <= 0) return std::nullopt;
  const double rate = static_cast<double>(*idle) / seconds(end.idle.elapsed);
  return Above{rate, static_cast<double>(*burst) - rate * seconds(end.burst.elapsed)};
}

/// Whether a priority is lossless at both ends; the first end that is not, or does not say, has a clause of its own.
Classified lossless_at_both(const BurstEnd& sender, const BurstEnd& receiver, unsigned priority, std::string& clause) {
  Classified verdict = Classified::kLossless;
  for (const BurstEnd* end : {&sender, &receiver}) {
    if (!end->pfc) {
      if (verdict == Classified::kLossless) verdict = Classified::kUnsure;
      clause += fmt::format("; whether it is lossless at {} is not known", end->name);
    } else if (!end->pfc->test(priority)) {
      verdict = Classified::kLossy;
      clause += fmt::format("; it is NOT lossless at {}", end->name);
    }
  }
  return verdict;
}

std::string why_priorities_differ(const BurstEnd& receiver, unsigned dscp) {
  if (receiver.trust && *receiver.trust == Trust::kPcp) {
    return fmt::format("{} does not sort by DSCP (trust pcp)", receiver.name);
  }
  return fmt::format("DSCP {} does not survive the way, or {} maps it otherwise", dscp, receiver.name);
}

ClassProof conclude(const BurstEnd& sender, const BurstEnd& receiver, unsigned dscp, ClassProof proof) {
  if (!proof.sender.priority || !proof.receiver.priority) {
    const bool at_sender = !proof.sender.priority;
    proof.conclusion = fmt::format("class unknown: at {}, {}", at_sender ? sender.name : receiver.name,
                                   at_sender ? proof.sender.why : proof.receiver.why);
    return proof;
  }
  const unsigned from = *proof.sender.priority;
  const unsigned to = *proof.receiver.priority;
  if (from != to) {
    proof.verdict = Classified::kLossy;
    proof.conclusion = fmt::format("data leaves in priority {} and arrives in priority {}: {}", from, to,
                                   why_priorities_differ(receiver, dscp));
    return proof;
  }
  proof.conclusion = fmt::format("data is classified into priority {} at both hosts, ", from);
  const bool by_dscp = receiver.trust && *receiver.trust == Trust::kDscp;
  proof.conclusion += by_dscp ? "DSCP survives: proven" : "proven; of the DSCP that says nothing: it is not trusted";
  proof.verdict = lossless_at_both(sender, receiver, from, proof.conclusion);
  return proof;
}

}  // namespace

Ride ride_of(const BurstEnd& end, BytesOf bytes, std::uint64_t expected) {
  Ride ride;
  const auto wanted = static_cast<double>(expected);
  std::string seen;
  bool counted = false;
  for (unsigned priority = 0; priority < kPriorities; ++priority) {
    const auto above = above_idle(end, priority, bytes);
    if (!above) continue;
    counted = true;
    if (std::abs(above->bytes - wanted) <= kProofTolerance * wanted && !ride.priority) {
      ride.priority = priority;
      ride.bytes = static_cast<std::uint64_t>(above->bytes);
      ride.idle_per_second = above->idle_per_second;
    }
    if (above->bytes > kWorthAWord * wanted) {
      seen += fmt::format("{}priority {} moved by {:.1f} MB", seen.empty() ? "" : ", ", priority, above->bytes / 1e6);
    }
  }
  if (ride.priority) return ride;
  if (!counted) {
    ride.why = "the driver counts no bytes by priority (ethtool -S)";
  } else {
    ride.why = fmt::format("no priority moved by {:.1f} MB within {:.0f} %: {}", wanted / 1e6, percent(kProofTolerance),
                           seen.empty() ? "none moved" : seen);
  }
  return ride;
}

ClassProof prove_class(const BurstEnd& sender, const BurstEnd& receiver, std::uint64_t expected, unsigned dscp) {
  ClassProof proof;
  proof.sender = ride_of(sender, &PriorityActivity::sent_bytes, expected);
  proof.receiver = ride_of(receiver, &PriorityActivity::received_bytes, expected);
  return conclude(sender, receiver, dscp, std::move(proof));
}

std::uint64_t bytes_on_wire(std::uint64_t payload, unsigned path_mtu, bool ipv6) {
  const std::uint64_t packets = (payload + path_mtu - 1) / path_mtu;
  return payload + packets * (kFraming + (ipv6 ? kIpv6 : kIpv4));
}

std::vector<std::string> pauses_at(const BurstEnd& end) {
  std::vector<std::string> lines;
  for (unsigned p = 0; p < kPriorities; ++p) {
    const PriorityActivity& priority = end.burst.priorities[p];
    if (priority.pauses_sent.value_or(0) != 0) {
      lines.push_back(
          fmt::format("{} paused its switch port {} times in priority {}", end.name, *priority.pauses_sent, p));
    }
    if (priority.pauses_received.value_or(0) != 0) {
      lines.push_back(fmt::format("{} was paused by its switch port {} times in priority {}", end.name,
                                  *priority.pauses_received, p));
    }
  }
  return lines;
}

}  // namespace tensorwire::host
