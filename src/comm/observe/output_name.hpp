// Files that every rank writes for itself: their names hold who wrote them.
#pragma once

#include <cstdint>
#include <string>

namespace tensorwire::comm {

/// Who observes: one rank of one communicator.
struct Identity {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint16_t communicator = 0;
  std::string host;
};

/// In `pattern`, %r becomes the rank, %c the communicator's number, %p the process id. Without %r and %p the rank goes
/// before the extension, and so does the number of a communicator other than 0 without %c: "trace.json" becomes
/// "trace.rank3.json".
[[nodiscard]] std::string output_name(const std::string& pattern, const Identity& who);

}  // namespace tensorwire::comm
