// The `tensorwire` program. Every error leaves as one line on stderr and a non-zero status.
#include <cstdio>
#include <exception>

#include "cli/program.hpp"

int main(int argc, char** argv) {
  try {
    return tensorwire::cli::run_program(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tensorwire: %s\n", error.what());
    return 1;
  }
}
