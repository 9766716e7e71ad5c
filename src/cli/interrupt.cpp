#include "cli/interrupt.hpp"

#include <array>
#include <cstddef>
#include <mutex>

namespace tensorwire::cli {

namespace {

constexpr std::array kSignals{SIGINT, SIGTERM};

volatile std::sig_atomic_t g_interrupted = 0;
std::array<struct sigaction, kSignals.size()> g_before;
std::mutex g_mutex;
int g_living = 0;

/// From now on the signal does what it did before.
void on_signal(int signal) {
  g_interrupted = 1;
  for (std::size_t n = 0; n < kSignals.size(); ++n)
    if (kSignals[n] == signal) sigaction(signal, &g_before[n], nullptr);
}

}  // namespace

Interruptible::Interruptible() {
  const std::lock_guard lock{g_mutex};
  if (g_living++ != 0) return;
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (std::size_t n = 0; n < kSignals.size(); ++n) sigaction(kSignals[n], nullptr, &g_before[n]);
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

Interruptible::~Interruptible() {
  const std::lock_guard lock{g_mutex};
  if (--g_living != 0) return;
  for (std::size_t n = 0; n < kSignals.size(); ++n) sigaction(kSignals[n], &g_before[n], nullptr);
}

const volatile std::sig_atomic_t& interrupt_flag() noexcept { return g_interrupted; }

}  // namespace tensorwire::cli
