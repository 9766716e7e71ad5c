#include "host/parse/qos_text.hpp"
#include "host/parse/text.hpp"

namespace tensorwire::host {

namespace {

/// "0:0 1:0 2:0 3:1 ..." : the traffic class of each priority.
void read_map(std::string_view list, NiccliQos& qos) {
  std::array<std::uint8_t, kPriorities> classes{};
  for (const std::string_view word : words_of(list)) {
    const auto parts = split(word, ':');
    const auto priority = number_in<unsigned>(parts[0]);
    const auto number = parts.size() == 2 ? number_in<std::uint8_t>(parts[1]) : std::nullopt;
    if (!priority || *priority >= kPriorities || !number) return;
    classes[*priority] = *number;
  }
  qos.traffic_class = classes;
}

/// "3", "3,4", "none".
void read_enabled(std::string_view list, NiccliQos& qos) {
  PrioritySet set;
  for (const std::string_view part : split(list, ',')) {
    for (const std::string_view word : words_of(part)) {
      const auto priority = number_in<unsigned>(word);
      if (priority && *priority < kPriorities) set.set(*priority);
      if (!priority && word != "none") return;
    }
  }
  qos.pfc = set;
}

}  // namespace

NiccliQos parse_niccli_qos(std::string_view text) {
  constexpr unsigned kDscpSelector = 5;
  NiccliQos qos;
  std::optional<unsigned> priority;
  std::optional<unsigned> selector;
  for (const std::string_view whole : lines_of(text)) {
    const std::string_view line = trimmed(whole);
    const auto number = [&line] { return number_in<unsigned>(trimmed(line.substr(line.find(':') + 1))); };
    if (line.starts_with("PRIO_MAP:")) {
      read_map(line.substr(line.find(':') + 1), qos);
    } else if (line.starts_with("PFC enabled:")) {
      read_enabled(line.substr(line.find(':') + 1), qos);
    } else if (line.starts_with("IEEE 8021QAZ APP TLV") && !qos.app) {
      qos.app.emplace().priority_of_dscp.fill(-1);
    } else if (line.starts_with("APP#")) {
      if (!qos.app) qos.app.emplace().priority_of_dscp.fill(-1);
      priority = selector = std::nullopt;
    } else if (line.starts_with("Priority:")) {
      priority = number();
    } else if (line.starts_with("Sel:")) {
      selector = number();
    } else if (qos.app && priority && *priority < kPriorities && line.starts_with("DSCP:") &&
               selector == kDscpSelector) {
      const auto dscp = number();
      if (!dscp || *dscp >= kDscps) continue;
      qos.app->has_dscp = true;
      qos.app->priority_of_dscp[*dscp] = static_cast<std::int8_t>(*priority);
    } else if (qos.app && priority && *priority < kPriorities && line.starts_with("UDP or DCCP:") &&
               number() == 4791U) {
      qos.app->priority_of_rocev2 = static_cast<std::uint8_t>(*priority);
    }
  }
  return qos;
}

}  // namespace tensorwire::host
