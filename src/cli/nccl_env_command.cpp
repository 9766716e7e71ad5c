// `tensorwire nccl-env`: the environment for NCCL and UCX on this host, and what a log says came of it.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "cli/program.hpp"
#include "host/nccl_env.hpp"
#include "host/read/read.hpp"
#include "host/record.hpp"
#include "host/tree/live_tree.hpp"

namespace tensorwire::cli {
namespace {

struct NcclEnvFlags {
  std::string root;
  std::string log;
  std::uint32_t dscp = 26;
  bool json = false;
};

void print(const NcclEnvFlags& flags) {
  if (!flags.log.empty()) {
    const host::NcclLog log = host::read_nccl_log(flags.log);
    std::fputs((flags.json ? host::what_happened_json(log) : host::what_happened(log)).c_str(), stdout);
    return;
  }
  const std::unique_ptr<host::Tree> tree =
      flags.root.empty() ? std::make_unique<host::LiveTree>() : host::open_recorded(flags.root);
  const auto environment = host::nccl_environment(host::read_host(*tree), flags.dscp);
  std::fputs((flags.json ? host::json_text(environment) : host::shell_text(environment)).c_str(), stdout);
}

}  // namespace

void add_nccl_env(Command& parent, int& /*status*/) {
  Command command = parent.command("nccl-env", "print the environment for NCCL and UCX on this host, with reasons");
  auto flags = std::make_shared<NcclEnvFlags>();
  command.option("--root", flags->root, "a recording, or a copy of a host's files, instead of this host");
  command.option("--check", flags->log, "say what this log of NCCL_DEBUG=INFO shows instead");
  command.option("--dscp", flags->dscp, "DSCP of the data").shows_default().between(0, 63);
  command.flag("--json", flags->json, "as JSON");
  command.runs([flags] { print(*flags); });
}

}  // namespace tensorwire::cli
