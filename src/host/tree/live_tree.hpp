// The host that this program runs on: its files, and the tools that are installed.
#pragma once

#include <string>

#include "host/tree/tree.hpp"

namespace tensorwire::host {

class LiveTree final : public Tree {
 public:
  /// `process`: the process to look at, a number; "self" is this program.
  /// `asks_firmware`: also run the vendor's tool for the firmware's settings, which takes seconds.
  explicit LiveTree(const std::string& process = "self", bool asks_firmware = false);

  [[nodiscard]] Answer answer(Ask kind, const std::string& name) override;

 private:
  [[nodiscard]] std::string real_name(const std::string& name) const;

  std::string process_;  ///< "/proc/self"
  bool asks_firmware_;
  std::string home_;  ///< home folder of that process; empty when it is not known
};

}  // namespace tensorwire::host
