#include "cli/mesh/sentence.hpp"

#include <fmt/format.h>

namespace tensorwire::cli {
namespace {

std::string rail_suffix(const Blame& blame, const MeshMatrix& mesh) {
  return blame.rail && mesh.rails() > 1 ? fmt::format(" on rail {}", *blame.rail) : std::string{};
}

std::string device_at(const MeshMatrix& mesh, std::size_t host, std::size_t rail) {
  const MeshEnd& end = mesh.hosts()[host].ends[rail];
  return end.netdev.empty() ? end.device : fmt::format("{} ({})", end.device, end.netdev);
}

std::string subject(const Blame& blame, const MeshMatrix& mesh) {
  const auto& hosts = mesh.hosts();
  switch (blame.scope) {
    case BlameScope::kAll:
      return "every pair";
    case BlameScope::kRail:
      return fmt::format("rail {}", *blame.rail);
    case BlameScope::kHost:
      return fmt::format("host {}", hosts[blame.host].name);
    case BlameScope::kCable:
      return fmt::format("cable of {} {} (rail {})", hosts[blame.host].name, device_at(mesh, blame.host, *blame.rail),
                         *blame.rail);
    case BlameScope::kPair:
    case BlameScope::kRailPair:
      break;
  }
  return fmt::format("{} {} {}{}", hosts[blame.host].name, blame.way == BlameWay::kBothWays ? "<->" : "->",
                     hosts[blame.peer].name, rail_suffix(blame, mesh));
}

bool is_of_one_host(const Blame& blame) {
  return blame.scope == BlameScope::kHost || blame.scope == BlameScope::kCable;
}

/// "" or ", sending to every other host": in which direction the cells of a host are bad.
std::string direction(const Blame& blame) {
  if (!is_of_one_host(blame)) return {};
  if (blame.way == BlameWay::kSending) return " sending to the other hosts";
  if (blame.way == BlameWay::kReceiving) return " receiving from the other hosts";
  return " with the other hosts, both ways";
}

const char* where_to_look(MeshTrouble trouble, const Blame& blame) {
  const bool reach = trouble == MeshTrouble::kUnreached;
  switch (blame.scope) {
    case BlameScope::kAll:
      return reach ? "Look at what all have in common: UDP port 4791, the GID index, the switch"
                   : "Look at what all have in common: the MTU, PCIe, power settings, the switch";
    case BlameScope::kRail:
      return "Look at what this rail has for itself: its switch, its VLAN and its devices' settings";
    case BlameScope::kHost:
      return reach ? "Look at its address, its routes, its firewall (UDP 4791) and its cable"
                   : "Look at its cable and switch port, its PCIe link, and what else runs there";
    case BlameScope::kCable:
      return "Look at the cable and its transceivers, the switch port, and the PCIe link of this device";
    case BlameScope::kPair:
    case BlameScope::kRailPair:
      break;
  }
  return reach ? "Look at the route between the two: neighbour entries, access lists, VLANs"
               : "Look at the route between the two: a spine link, ECMP, a congested uplink";
}

std::string measured(const MeshFinding& finding) {
  if (finding.trouble == MeshTrouble::kLatency) {
    return fmt::format("latency {:.1f} us{}, {:.1f} times the usual {:.1f} us", finding.measured,
                       direction(finding.blame), finding.measured / finding.usual, finding.usual);
  }
  return fmt::format("bandwidth {:.3f} GB/s{}, {:.0f} % of the {} {:.3f} GB/s", finding.measured,
                     direction(finding.blame), 100 * finding.measured / finding.usual,
                     finding.usual_is_line ? "line's" : "usual", finding.usual);
}

}  // namespace

std::string mesh_sentence(const MeshFinding& finding, const MeshMatrix& mesh, const std::string& why) {
  const std::string who = subject(finding.blame, mesh);
  const char* const look = where_to_look(finding.trouble, finding.blame);
  switch (finding.trouble) {
    case MeshTrouble::kAbsent:
      return fmt::format("{} took no part: {}", who, why);
    case MeshTrouble::kDevice:
      return fmt::format("{} rail {}: {}", mesh.hosts()[finding.blame.host].name, *finding.blame.rail, why);
    case MeshTrouble::kUnreached:
      return fmt::format("{}: writes fail{}: {}. {}", who, direction(finding.blame), why, look);
    case MeshTrouble::kLatency:
    case MeshTrouble::kBandwidth:
      break;
  }
  return fmt::format("{}: {}. {}", who, measured(finding), look);
}

const char* name_of(MeshTrouble trouble) {
  switch (trouble) {
    case MeshTrouble::kAbsent:
      return "absent";
    case MeshTrouble::kDevice:
      return "device";
    case MeshTrouble::kUnreached:
      return "unreached";
    case MeshTrouble::kLatency:
      return "latency";
    case MeshTrouble::kBandwidth:
      break;
  }
  return "bandwidth";
}

const char* name_of(BlameScope scope) {
  switch (scope) {
    case BlameScope::kAll:
      return "all";
    case BlameScope::kRail:
      return "rail";
    case BlameScope::kHost:
      return "host";
    case BlameScope::kCable:
      return "cable";
    case BlameScope::kPair:
    case BlameScope::kRailPair:
      break;
  }
  return "pair";
}

const char* name_of(BlameWay way) {
  switch (way) {
    case BlameWay::kBothWays:
      return "both";
    case BlameWay::kSending:
      return "sending";
    case BlameWay::kReceiving:
      break;
  }
  return "receiving";
}

}  // namespace tensorwire::cli
