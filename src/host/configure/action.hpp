// One thing that is done to a host: a program that is run, or a word that is written into a file of the kernel's. It
// can be shown as a line of shell, and a shell that runs that line does the same.
#pragma once

#include <string>
#include <vector>

namespace tensorwire::host {

struct Action {
  std::vector<std::string> program;  ///< and its arguments; empty: `text` is written to `path`
  std::string path;
  std::string text;

  [[nodiscard]] std::string shell() const;
  bool operator==(const Action&) const = default;
};

/// "dcb pfc set dev eth2 prio-pfc all:off", or "> PATH TEXT" for what is written.
[[nodiscard]] Action action_of(const std::string& line);

}  // namespace tensorwire::host
