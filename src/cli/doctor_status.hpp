// The exit status of `tensorwire doctor` and what is below it: 0 to 2 are verdicts, and every way to fail is told apart
// from them.
#pragma once

#include <cstdio>

#include "base/error.hpp"

namespace tensorwire::cli {

inline constexpr int kNoVerdict = 3;

/// What `action` returns; kNoVerdict, and a line on standard error, when it throws an Error.
template <class Action>
int verdict_of(Action action) {
  try {
    return action();
  } catch (const Error& error) {
    std::fprintf(stderr, "tensorwire: %s\n", error.what());
    return kNoVerdict;
  }
}

}  // namespace tensorwire::cli
