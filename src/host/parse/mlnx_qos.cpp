#include "host/parse/qos_text.hpp"
#include "host/parse/text.hpp"

namespace tensorwire::host {

namespace {

/// "\tprio:3 dscp:31,30,29,": such lines follow one another when there are many.
void read_dscps(std::string_view line, MlnxQos& qos) {
  const auto priority = leading_number(*between(line, "prio:", {}));
  const auto dscps = between(line, "dscp:", {});
  if (!priority || *priority < 0 || *priority >= static_cast<int>(kPriorities) || !dscps) return;
  if (!qos.priority_of_dscp) qos.priority_of_dscp.emplace();
  for (const std::string_view word : split(*dscps, ',')) {
    const auto dscp = leading_number(trimmed(word));
    if (dscp && *dscp >= 0 && *dscp < static_cast<int>(kDscps)) {
      (*qos.priority_of_dscp)[static_cast<std::size_t>(*dscp)] = static_cast<std::uint8_t>(*priority);
    }
  }
}

/// "\tenabled     0   0   0   1   0   0   0   0".
void read_pfc(std::string_view line, MlnxQos& qos) {
  const auto words = words_of(line);
  if (words.size() != kPriorities + 1) return;
  PrioritySet set;
  for (std::size_t i = 0; i < kPriorities; ++i) set[i] = words[i + 1] == "1";
  qos.pfc = set;
}

/// "Receive buffer size (bytes): 19872,243072,0,0,0,0,0,0,max_buffer_size=2069280".
void read_buffer_sizes(std::string_view list, MlnxQos& qos) {
  const auto parts = split(list, ',');
  if (parts.size() < kPriorities) return;
  std::array<std::uint32_t, kPriorities> sizes{};
  for (std::size_t i = 0; i < kPriorities; ++i) {
    const auto size = number_in<std::uint32_t>(trimmed(parts[i]));
    if (!size) return;
    sizes[i] = *size;
  }
  qos.buffer_bytes = sizes;
}

/// "\tbuffer      0   0   0   1   0   0   0   0".
void read_buffers(std::string_view line, MlnxQos& qos) {
  const auto words = words_of(line);
  if (words.size() != kPriorities + 1) return;
  std::array<std::uint8_t, kPriorities> buffers{};
  for (std::size_t i = 0; i < kPriorities; ++i) {
    const auto number = number_in<std::uint8_t>(words[i + 1]);
    if (!number || *number >= kPriorities) return;
    buffers[i] = *number;
  }
  qos.buffer = buffers;
}

/// "tc: 3 ratelimit: unlimited, tsa: ets, bw: 50%".
void read_algorithm(std::string_view line, int current, MlnxQos& qos) {
  const auto name = between(line, "tsa:", ",");
  const auto algorithm = name ? tsa_named(trimmed(*name)) : std::nullopt;
  if (!algorithm || current < 0 || current >= static_cast<int>(kPriorities)) return;
  if (!qos.ets) qos.ets.emplace().algorithm.fill(Tsa::kVendor);
  const auto share = between(line, "bw:", "%");
  const auto percent = share ? number_in<std::uint8_t>(trimmed(*share)) : std::nullopt;
  qos.ets->algorithm[static_cast<std::size_t>(current)] = *algorithm;
  qos.ets->share[static_cast<std::size_t>(current)] = percent.value_or(0);
}

/// "tc: 3 ratelimit: unlimited, tsa: vendor", then "\t priority:  3" for each priority of it.
void read_traffic_class(std::string_view line, int& current, MlnxQos& qos) {
  if (line.starts_with("tc:")) {
    current = leading_number(trimmed(line.substr(3))).value_or(-1);
    read_algorithm(line, current, qos);
    return;
  }
  const auto priority = leading_number(trimmed(line.substr(line.find(':') + 1)));
  if (current < 0 || current > 255 || !priority || *priority < 0 || *priority >= static_cast<int>(kPriorities)) return;
  if (!qos.traffic_class) qos.traffic_class.emplace();
  (*qos.traffic_class)[static_cast<std::size_t>(*priority)] = static_cast<std::uint8_t>(current);
}

}  // namespace

std::optional<Tsa> tsa_named(std::string_view name) {
  for (const Tsa one : {Tsa::kStrict, Tsa::kShaper, Tsa::kEts, Tsa::kVendor}) {
    if (name == to_string(one)) return one;
  }
  return std::nullopt;
}

std::optional<std::array<std::uint8_t, kDscps>> parse_dscp2prio(std::string_view text) {
  MlnxQos qos;
  for (const std::string_view whole : lines_of(text)) {
    const std::string_view line = trimmed(whole);
    if (line.starts_with("prio:")) read_dscps(line, qos);
  }
  return qos.priority_of_dscp;
}

MlnxQos parse_mlnx_qos(std::string_view text) {
  MlnxQos qos;
  int current_class = -1;
  for (const std::string_view whole : lines_of(text)) {
    const std::string_view line = trimmed(whole);
    if (const auto mode = between(line, "DCBX mode:", {})) {
      qos.host_controls = mode->find("OS controlled") != std::string_view::npos;
    } else if (const auto trust = between(line, "Priority trust state:", {})) {
      if (trimmed(*trust) == "dscp") qos.trust = Trust::kDscp;
      if (trimmed(*trust) == "pcp" || trimmed(*trust) == "none") qos.trust = Trust::kPcp;
    } else if (line.starts_with("prio:")) {
      read_dscps(line, qos);
    } else if (line.starts_with("enabled")) {
      read_pfc(line, qos);
    } else if (const auto sizes = between(line, "Receive buffer size (bytes):", {})) {
      read_buffer_sizes(*sizes, qos);
    } else if (line.starts_with("buffer ")) {
      read_buffers(line, qos);
    } else if (line.starts_with("tc:") || line.starts_with("priority:")) {
      read_traffic_class(line, current_class, qos);
    }
  }
  return qos;
}

}  // namespace tensorwire::host
