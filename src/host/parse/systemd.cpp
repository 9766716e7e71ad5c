#include "host/parse/systemd.hpp"

#include <limits>

#include "host/parse/text.hpp"

namespace tensorwire::host {

std::optional<std::string_view> limit_memlock_in(std::string_view unit_file) {
  constexpr std::string_view kKey = "LimitMEMLOCK";
  std::optional<std::string_view> value;
  for (const std::string_view whole : lines_of(unit_file)) {
    const std::string_view line = trimmed(whole);
    const auto sign = line.find('=');
    if (sign != std::string_view::npos && trimmed(line.substr(0, sign)) == kKey) value = trimmed(line.substr(sign + 1));
  }
  return value;
}

std::optional<std::uint64_t> bytes_of_limit(std::string_view value) {
  constexpr std::string_view kUnits = "KMGTPE";
  value = trimmed(value.substr(0, value.find(':')));
  if (value == "infinity") return std::numeric_limits<std::uint64_t>::max();
  if (value.empty()) return std::nullopt;
  const auto unit = kUnits.find(value.back());
  const auto number =
      number_in<std::uint64_t>(unit == std::string_view::npos ? value : value.substr(0, value.size() - 1));
  if (!number || unit == std::string_view::npos) return number;
  const unsigned shift = 10 * (static_cast<unsigned>(unit) + 1);
  if (*number > std::numeric_limits<std::uint64_t>::max() >> shift) return std::nullopt;
  return *number << shift;
}

std::string service_in(std::string_view cgroup) {
  std::string service;
  for (const std::string_view line : lines_of(cgroup)) {
    for (const std::string_view part : split(line, '/')) {
      if (part.ends_with(".service")) service = part;
    }
  }
  return service;
}

}  // namespace tensorwire::host
