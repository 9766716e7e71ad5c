#include "cli/prove/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/doctor_status.hpp"

namespace tensorwire::cli {
namespace {

using host::Classified;
using Json = nlohmann::json;

constexpr const char* kNoSwitch =
    "switch queue: unknown (no host sees it; --switch FILE imports what the switch prints about its queues)";

double mega(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

std::string ride_line(const host::BurstEnd& end, const host::Ride& ride, const char* verb, std::uint64_t expected) {
  if (!ride.priority) return fmt::format("  {} {}: {}\n", end.name, verb, ride.why);
  return fmt::format("  {} {} {:.2f} MB in priority {}, {:+.2f} % of what was expected (idle: {:.1f} kB/s)\n", end.name,
                     verb, mega(ride.bytes), *ride.priority,
                     100.0 * (mega(ride.bytes) - mega(expected)) / mega(expected), ride.idle_per_second / 1e3);
}

std::vector<std::string> pauses_of(const ProvenBurst& burst) {
  std::vector<std::string> lines = host::pauses_at(burst.sender);
  for (std::string& line : host::pauses_at(burst.receiver)) lines.push_back(std::move(line));
  return lines;
}

Json ride_json(const host::BurstEnd& end, const host::Ride& ride) {
  return {{"end", end.name},
          {"priority", ride.priority ? Json(*ride.priority) : Json(nullptr)},
          {"bytes", ride.bytes},
          {"idle_bytes_per_second", ride.idle_per_second},
          {"lossless", ride.priority && end.pfc ? Json(end.pfc->test(*ride.priority)) : Json(nullptr)},
          {"why", ride.why}};
}

const char* name_of(Classified verdict) {
  switch (verdict) {
    case Classified::kLossless:
      return "lossless";
    case Classified::kUnsure:
      return "unsure";
    case Classified::kLossy:
      return "lossy";
    case Classified::kUnknown:
      break;
  }
  return "unknown";
}

}  // namespace

std::vector<ProvenBurst> judge(const std::vector<Evidence>& ends, std::uint64_t payload, unsigned dscp) {
  std::vector<ProvenBurst> bursts;
  for (std::size_t from = 0; from < ends.size(); ++from) {
    const Evidence& sender = ends[from];
    const Evidence& receiver = ends[(from + 1) % ends.size()];
    const unsigned mtu = std::min(sender.path_mtu, receiver.path_mtu);
    ProvenBurst burst{
        payload, host::bytes_on_wire(payload, mtu, sender.ipv6), sender.end_of(from), receiver.end_of(from), {}};
    burst.proof = host::prove_class(burst.sender, burst.receiver, burst.expected, dscp);
    bursts.push_back(std::move(burst));
  }
  return bursts;
}

std::string proof_text(const std::vector<ProvenBurst>& bursts, const std::vector<std::string>& switch_lines) {
  std::string text;
  for (const ProvenBurst& burst : bursts) {
    text += fmt::format("{} -> {}: {:.2f} MB of data, {:.2f} MB as packets\n", burst.sender.name, burst.receiver.name,
                        mega(burst.payload), mega(burst.expected));
    text += ride_line(burst.sender, burst.proof.sender, "sent", burst.expected);
    text += ride_line(burst.receiver, burst.proof.receiver, "received", burst.expected);
    for (const std::string& line : pauses_of(burst)) text += fmt::format("  {}\n", line);
    text += fmt::format("  -> {}\n", burst.proof.conclusion);
  }
  for (const std::string& line : switch_lines) text += line + "\n";
  return switch_lines.empty() ? text + kNoSwitch + "\n" : text;
}

Json proof_json(const std::vector<ProvenBurst>& bursts, const std::vector<std::string>& switch_lines) {
  Json all = Json::array();
  for (const ProvenBurst& burst : bursts) {
    all.push_back({{"payload_bytes", burst.payload},
                   {"expected_bytes", burst.expected},
                   {"sender", ride_json(burst.sender, burst.proof.sender)},
                   {"receiver", ride_json(burst.receiver, burst.proof.receiver)},
                   {"pauses", pauses_of(burst)},
                   {"verdict", name_of(burst.proof.verdict)},
                   {"conclusion", burst.proof.conclusion}});
  }
  return {{"bursts", std::move(all)}, {"switch", switch_lines.empty() ? Json(nullptr) : Json(switch_lines)}};
}

int exit_status(const std::vector<ProvenBurst>& bursts) {
  const auto any = [&](Classified verdict) {
    return std::ranges::any_of(bursts, [&](const ProvenBurst& burst) { return burst.proof.verdict == verdict; });
  };
  if (any(Classified::kLossy)) return 2;
  if (any(Classified::kUnknown)) return kNoVerdict;
  return any(Classified::kUnsure) ? 1 : 0;
}

}  // namespace tensorwire::cli
