// Ctrl-C as a request: what is measured so far is kept and reported. A second one ends the process.
#pragma once

#include <csignal>

namespace tensorwire::cli {

/// From now on SIGINT and SIGTERM set the flag, once each; after that they do what they always do.
const volatile std::sig_atomic_t& note_interrupts();

}  // namespace tensorwire::cli
