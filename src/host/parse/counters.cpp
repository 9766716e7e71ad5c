#include "host/parse/counters.hpp"

#include "host/parse/text.hpp"

namespace tensorwire::host {

Counters parse_ethtool_statistics(std::string_view text) {
  Counters counters;
  for (const std::string_view line : lines_of(text)) {
    const auto colon = line.rfind(':');
    if (colon == std::string_view::npos) continue;
    const auto value = number_in<std::uint64_t>(trimmed(line.substr(colon + 1)));
    const std::string_view name = trimmed(line.substr(0, colon));
    if (value && !name.empty()) counters.insert_or_assign(std::string{name}, *value);
  }
  return counters;
}

std::map<std::string, std::string, std::less<>> parse_environment(std::string_view text) {
  std::map<std::string, std::string, std::less<>> variables;
  for (const std::string_view variable : split(text, '\0')) {
    const auto sign = variable.find('=');
    if (sign == std::string_view::npos || sign == 0) continue;
    variables.emplace(variable.substr(0, sign), variable.substr(sign + 1));
  }
  return variables;
}

std::map<std::string, std::string, std::less<>> parse_nccl_conf(std::string_view text) {
  std::map<std::string, std::string, std::less<>> settings;
  for (const std::string_view whole : lines_of(text)) {
    const std::string_view line = trimmed(whole.substr(0, whole.find('#')));
    const auto sign = line.find('=');
    if (sign == std::string_view::npos || sign == 0) continue;
    settings.insert_or_assign(std::string{trimmed(line.substr(0, sign))}, std::string{trimmed(line.substr(sign + 1))});
  }
  return settings;
}

}  // namespace tensorwire::host
