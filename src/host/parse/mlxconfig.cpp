#include "host/parse/mlxconfig.hpp"

#include <algorithm>
#include <array>

#include "host/parse/text.hpp"

namespace tensorwire::host {

namespace {

bool is_setting_name(std::string_view word) {
  return word.size() > 2 &&
         std::ranges::all_of(word, [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; });
}

/// "*       PCI_WR_ORDERING    per_mkey(0)    force_relax(1)    force_relax(1)": the mark says that it is not the
/// default.
std::vector<std::string_view> setting_in(std::string_view line) {
  auto words = words_of(line);
  if (!words.empty() && words.front() == "*") words.erase(words.begin());
  const bool fits = (words.size() == 2 || words.size() == 4) && is_setting_name(words.front());
  return fits ? words : std::vector<std::string_view>{};
}

}  // namespace

std::optional<std::map<std::string, std::string, std::less<>>> parse_mlxconfig(std::string_view text) {
  if (text.find("Configurations:") == std::string_view::npos) return std::nullopt;
  std::map<std::string, std::string, std::less<>> settings;
  for (const std::string_view line : lines_of(text)) {
    const auto words = setting_in(line);
    if (!words.empty()) settings.insert_or_assign(std::string{words[0]}, std::string{words[words.size() / 2]});
  }
  return settings;
}

std::string fabric_settings(std::string_view text) {
  constexpr std::array kWanted = {"ROCE_CC_", "PCI_WR_ORDERING", "CNP_"};
  std::string kept;
  for (const std::string_view line : lines_of(text)) {
    const auto words = setting_in(line);
    const bool wanted = line.starts_with("Configurations:") ||
                        (!words.empty() && std::ranges::any_of(kWanted, [&](std::string_view begin) {
                          return words[0].starts_with(begin);
                        }));
    if (wanted) kept.append(line).append("\n");
  }
  return kept;
}

}  // namespace tensorwire::host
