// A command of the program and its options: a narrow face of CLI11. That library is headers only and takes a compiler
// ten seconds, so command.cpp alone includes it; a type that an option may have is listed there.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tensorwire::cli {

/// Each call narrows what the option takes, or says how --help shows it.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option& option) noexcept : option_{&option} {}

  CommandOption& required();
  CommandOption& shows_default();
  CommandOption& between(std::uint64_t smallest, std::uint64_t largest);
  CommandOption& positive();
  CommandOption& non_negative();
  CommandOption& existing_file();
  CommandOption& separated_by(char delimiter);
  CommandOption& listed_under(const std::string& heading);

 private:
  CLI::Option* option_;
};

class Command {
 public:
  explicit Command(CLI::App& app) noexcept : app_{&app} {}

  /// A command below this one.
  Command command(const std::string& name, const std::string& help);
  /// One of the commands below must be given.
  void needs_command();
  /// What it does when it is given, after its options have been read.
  void runs(std::function<void()> action);

  /// `names` as "-o,--output", or "files" for what needs no name. `target` holds the default, and outlives the parsing.
  template <class T>
  CommandOption option(const std::string& names, T& target, const std::string& help);
  CommandOption flag(const std::string& names, bool& target, const std::string& help);

 private:
  CLI::App* app_;
};

/// Reads the command line with the commands that `add_commands` gives and runs the one that was asked for.
/// @return 0, or 2 after one line on stderr about what is wrong with it.
int parse_command_line(int argc, const char* const* argv, const std::function<void(Command&)>& add_commands);

}  // namespace tensorwire::cli
