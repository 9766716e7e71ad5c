#include "cli/command.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

namespace tensorwire::cli {

CommandOption& CommandOption::required() {
  option_->required();
  return *this;
}

CommandOption& CommandOption::shows_default() {
  option_->capture_default_str();
  return *this;
}

CommandOption& CommandOption::between(std::uint64_t smallest, std::uint64_t largest) {
  option_->check(CLI::Range(smallest, largest));
  return *this;
}

CommandOption& CommandOption::positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}

CommandOption& CommandOption::non_negative() {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}

CommandOption& CommandOption::existing_file() {
  option_->check(CLI::ExistingFile);
  return *this;
}

CommandOption& CommandOption::separated_by(char delimiter) {
  option_->delimiter(delimiter);
  return *this;
}

CommandOption& CommandOption::listed_under(const std::string& heading) {
  option_->group(heading);
  return *this;
}

Command Command::command(const std::string& name, const std::string& help) {
  return Command{*app_->add_subcommand(name, help)};
}

void Command::needs_command() { app_->require_subcommand(1); }

void Command::runs(std::function<void()> action) { app_->callback(std::move(action)); }

template <class T>
CommandOption Command::option(const std::string& names, T& target, const std::string& help) {
  return CommandOption{*app_->add_option(names, target, help)};
}

CommandOption Command::flag(const std::string& names, bool& target, const std::string& help) {
  return CommandOption{*app_->add_flag(names, target, help)};
}

#define TENSORWIRE_OPTION_OF(...) \
  template CommandOption Command::option(const std::string&, __VA_ARGS__&, const std::string&);
TENSORWIRE_OPTION_OF(int)
TENSORWIRE_OPTION_OF(double)
TENSORWIRE_OPTION_OF(std::uint16_t)
TENSORWIRE_OPTION_OF(std::uint32_t)
TENSORWIRE_OPTION_OF(std::int64_t)
TENSORWIRE_OPTION_OF(std::string)
TENSORWIRE_OPTION_OF(std::optional<int>)
TENSORWIRE_OPTION_OF(std::optional<double>)
TENSORWIRE_OPTION_OF(std::optional<std::uint16_t>)
TENSORWIRE_OPTION_OF(std::optional<std::uint64_t>)
TENSORWIRE_OPTION_OF(std::optional<std::string>)
TENSORWIRE_OPTION_OF(std::vector<double>)
TENSORWIRE_OPTION_OF(std::vector<std::string>)
#undef TENSORWIRE_OPTION_OF

int parse_command_line(int argc, const char* const* argv, const std::function<void(Command&)>& add_commands) {
  CLI::App app{"Tensorwire: real-time tensor-parallel communication over RoCEv2", "tensorwire"};
  app.set_version_flag("--version", "tensorwire " TENSORWIRE_VERSION);
  Command program{app};
  program.needs_command();
  add_commands(program);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "tensorwire: %s (see --help)\n", error.what());
    return 2;
  }
  return 0;
}

}  // namespace tensorwire::cli
