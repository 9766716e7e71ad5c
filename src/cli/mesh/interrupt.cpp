#include "cli/mesh/interrupt.hpp"

namespace tensorwire::cli {
namespace {

volatile std::sig_atomic_t interrupt_noted = 0;

}  // namespace

const volatile std::sig_atomic_t& note_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupt_noted = 1; };
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return interrupt_noted;
}

}  // namespace tensorwire::cli
