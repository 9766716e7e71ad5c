// Ctrl-C as a request: what was measured or simulated so far is kept and reported. A second one ends the program.
#pragma once

#include <csignal>

namespace tensorwire::cli {

/// What a program returns that SIGINT ended.
inline constexpr int kInterruptedStatus = 130;

/// While one lives, SIGINT and SIGTERM set the flag, once each, and then do what they did before. Several may live at
/// once; they are made and destroyed on any thread.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;
};

/// Not zero: the user wants an end. Never becomes zero again.
[[nodiscard]] const volatile std::sig_atomic_t& interrupt_flag() noexcept;

}  // namespace tensorwire::cli
