// The `tensorwire` program. Every error leaves as one line on stderr and a non-zero status.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "cli/program.hpp"

namespace tensorwire::cli {

namespace {

std::vector<std::string>& stored_arguments() {
  static std::vector<std::string> arguments;
  return arguments;
}

void add_bench(CLI::App& app, int& status) {
  CLI::App* bench = app.add_subcommand("bench", "measure collectives, side by side");
  bench->require_subcommand(1);
  add_bench_decode(*bench, status);
  add_bench_allreduce(*bench, status);
}

int run(int argc, char** argv) {
  stored_arguments().assign(argv + 1, argv + argc);
  int status = 0;
  CLI::App app{"Tensorwire: real-time tensor-parallel communication over RoCEv2", "tensorwire"};
  app.set_version_flag("--version", "tensorwire " TENSORWIRE_VERSION);
  app.require_subcommand(1);
  add_bench(app, status);
  add_plan(app, status);
  add_tune(app, status);
  add_soft(app, status);
  add_env(app, status);
  add_trace(app, status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "tensorwire: %s (see --help)\n", error.what());
    return 2;
  }
  return status;
}

}  // namespace

const std::vector<std::string>& program_arguments() noexcept { return stored_arguments(); }

}  // namespace tensorwire::cli

int main(int argc, char** argv) {
  try {
    return tensorwire::cli::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tensorwire: %s\n", error.what());
    return 1;
  }
}
