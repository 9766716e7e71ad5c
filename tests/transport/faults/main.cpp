// test_faults: runs seeds of the fault simulation; see README.md.
#include "seeds.hpp"

int main(int count, char** arguments) {
  using namespace tensorwire::transport::faults;
  return run_program(
      {.name = "test_faults",
       .make_workspace = [] { return std::make_unique<Workspace>(); },
       .make_run = [](std::uint64_t seed, Workspace& workspace) { return std::make_unique<Run>(seed, workspace); }},
      count, arguments);
}
