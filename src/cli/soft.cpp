// `tensorwire soft -- COMMAND...`: any verbs program on the user-space HCA.
#include <memory>
#include <string>
#include <vector>

#include "cli/program.hpp"
#include "cli/soft_command.hpp"

namespace tensorwire::cli {

void add_soft(Command& parent, int& /*status*/) {
  Command command = parent.command("soft", "run a verbs program on the user-space HCA: soft -- COMMAND...");
  const auto program = std::make_shared<std::vector<std::string>>();
  command.option("COMMAND", *program, "the program and its arguments, behind --");
  const auto no_sysfs = std::make_shared<bool>(false);
  command.flag("--no-sysfs", *no_sysfs, "do not show the devices in /sys/class/infiniband (no namespace of its own)");
  command.runs([program, no_sysfs] { run_on_soft_hca(*program, {.sysfs = !*no_sysfs}); });
}

}  // namespace tensorwire::cli
