// A file into which somebody writes a switch's counters, again and again or just once: for example
// `while sleep 5; do ssh leaf1 show queue counters >FILE; done`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "host/parse/switch_counters.hpp"

namespace tensorwire::cli {

class SwitchDump {
 public:
  /// @throws Error where the file cannot be read or has no table of counters
  explicit SwitchDump(std::string path);

  [[nodiscard]] const host::SwitchCounters& counters() const noexcept { return counters_; }
  /// Takes what the file says now. @return whether that is something new and whole
  bool refresh();
  /// Waits for a dump that was asked for after this call, if one follows on the other. @return false: none came within
  /// `bound`
  bool wait_for_newer(Ps bound);

 private:
  std::string path_;
  std::optional<std::int64_t> written_at_;
  host::SwitchCounters counters_;
};

}  // namespace tensorwire::cli
