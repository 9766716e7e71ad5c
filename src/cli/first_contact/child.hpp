// A program that is run with a bound: what it printed and how it ended. What may crash or hang (CUDA, a vendor's
// library) runs so, and takes nobody with it.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "base/time.hpp"

namespace tensorwire::cli {

struct ChildPlan {
  std::vector<std::string> words;        ///< the program, looked up in PATH, and its arguments
  std::vector<std::string> environment;  ///< "NAME=value"; empty: this process's
  Ps bound = 60 * kSecond;
};

struct ChildResult {
  std::string program;
  std::string out;
  std::string err;
  int status = -1;      ///< of its exit; -1: it did not end by itself
  std::string problem;  ///< why it never ran, or how it was ended

  [[nodiscard]] bool ok() const noexcept { return problem.empty() && status == 0; }
  /// One line for what is not ok: the problem, or the status and its last words.
  [[nodiscard]] std::string why() const;
};

/// @param stop  becomes non-zero when the user interrupts: then it is killed
[[nodiscard]] ChildResult run_child(const ChildPlan& plan, const volatile std::sig_atomic_t& stop);

/// A flag for what no interrupt shall end.
[[nodiscard]] const volatile std::sig_atomic_t& never_stops();

/// The words that run this program itself.
[[nodiscard]] std::vector<std::string> this_program(const std::vector<std::string>& arguments);

}  // namespace tensorwire::cli
