// `tensorwire env`: the documented environment variables and what they are set to.
#include <fmt/format.h>

#include <cstdlib>

#include "base/env.hpp"
#include "cli/program.hpp"

namespace tensorwire::cli {

namespace {

/// A secret is said to be set and never shown.
std::string shown_value(std::string_view name) {
  const char* value = std::getenv(std::string{name}.c_str());
  if (value == nullptr) return "";
  return name == "TENSORWIRE_SECRET" ? " [set]" : fmt::format(" [{}]", value);
}

void print_variables() {
  for (const env::Variable& variable : env::kVariables) {
    fmt::print("{}{}\n    {} (default: {})\n", variable.name, shown_value(variable.name), variable.meaning,
               variable.default_text);
  }
  for (const std::string& name : env::unknown_variables())
    fmt::print("{}: not a variable of Tensorwire (misspelled?)\n", name);
}

}  // namespace

void add_env(Command& parent, int& /*status*/) {
  Command command = parent.command("env", "print the environment variables that Tensorwire reads");
  command.runs(print_variables);
}

}  // namespace tensorwire::cli
