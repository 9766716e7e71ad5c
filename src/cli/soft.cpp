// `tensorwire soft -- COMMAND...`: any verbs program on the user-space HCA.
#include <memory>
#include <string>
#include <vector>

#include "cli/program.hpp"
#include "cli/soft_command.hpp"

namespace tensorwire::cli {

void add_soft(CLI::App& parent, int& /*status*/) {
  CLI::App* command = parent.add_subcommand("soft", "run a verbs program on the user-space HCA: soft -- COMMAND...");
  const auto program = std::make_shared<std::vector<std::string>>();
  command->add_option("COMMAND", *program, "the program and its arguments, behind --");
  command->callback([program] { run_on_soft_hca(*program); });
}

}  // namespace tensorwire::cli
