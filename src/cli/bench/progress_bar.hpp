// One line on stderr that shows how far a long run is; silent where stderr is no terminal.
#pragma once

#include <cstdint>
#include <string>

#include "base/time.hpp"

namespace tensorwire::cli {

class ProgressBar {
 public:
  /// `enabled` false makes every call do nothing (ranks other than 0).
  ProgressBar(std::string label, std::uint64_t total, bool enabled);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void advance(std::uint64_t steps = 1);

 private:
  void draw(Ps now);

  std::string label_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  bool enabled_;
  Ps started_;
  Ps last_drawn_ = 0;
};

}  // namespace tensorwire::cli
