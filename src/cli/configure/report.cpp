#include "cli/configure/report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace tensorwire::cli {
namespace {

std::vector<std::string> shell_lines(const std::vector<host::Action>& actions) {
  std::vector<std::string> lines;
  for (const host::Action& action : actions) lines.push_back(action.shell());
  return lines;
}

std::vector<std::string> names(const std::vector<host::Part>& parts) {
  std::vector<std::string> all;
  for (const host::Part part : parts) all.emplace_back(host::name_of(part));
  return all;
}

}  // namespace

std::string report_of(const host::PortDifference& difference) {
  std::string text = difference.recipe.empty() ? fmt::format("{}\n", difference.netdev)
                                               : fmt::format("{} ({})\n", difference.netdev, difference.recipe);
  for (const std::string& why : difference.refusals) text += fmt::format("  refused: {}\n", why);
  for (const host::Change& change : difference.changes) {
    text += fmt::format("  {}: {} -> {}{}\n", host::name_of(change.part), change.now, change.wanted,
                        change.undo.empty() ? " (cannot be set back)" : "");
    for (const std::string& line : shell_lines(change.set)) text += fmt::format("      {}\n", line);
  }
  for (const host::Part part : difference.equal) text += fmt::format("  {}: as wanted\n", host::name_of(part));
  for (const std::string& note : difference.notes) text += fmt::format("  {}\n", note);
  for (const std::string& why : difference.unknown) text += fmt::format("  not known: {}\n", why);
  return text;
}

nlohmann::json json_of(const std::vector<host::PortDifference>& differences) {
  nlohmann::json all = nlohmann::json::array();
  for (const host::PortDifference& difference : differences) {
    nlohmann::json changes = nlohmann::json::array();
    for (const host::Change& change : difference.changes) {
      changes.push_back({{"part", host::name_of(change.part)},
                         {"now", change.now},
                         {"wanted", change.wanted},
                         {"commands", shell_lines(change.set)},
                         {"undo", shell_lines(change.undo)}});
    }
    all.push_back({{"interface", difference.netdev},
                   {"recipe", difference.recipe},
                   {"changes", std::move(changes)},
                   {"equal", names(difference.equal)},
                   {"notes", difference.notes},
                   {"unknown", difference.unknown},
                   {"refusals", difference.refusals}});
  }
  return all;
}

}  // namespace tensorwire::cli
