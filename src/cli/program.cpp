#include "cli/program.hpp"

namespace tensorwire::cli {

namespace {

std::vector<std::string>& stored_arguments() {
  static std::vector<std::string> arguments;
  return arguments;
}

}  // namespace

int run_program(int argc, char** argv) {
  stored_arguments().assign(argv + 1, argv + argc);
  int status = 0;
  const int parsed = parse_command_line(argc, argv, [&status](Command& program) {
    Command bench = program.command("bench", "measure collectives, side by side");
    bench.needs_command();
    add_bench_decode(bench, status);
    add_bench_allreduce(bench, status);
    add_plan(program, status);
    add_tune(program, status);
    add_soft(program, status);
    add_env(program, status);
    add_trace(program, status);
    add_doctor(program, status);
    add_configure(program, status);
    add_nccl_env(program, status);
    add_sim(program, status);
    add_first_contact(program, status);
  });
  return parsed != 0 ? parsed : status;
}

const std::vector<std::string>& program_arguments() noexcept { return stored_arguments(); }

}  // namespace tensorwire::cli
