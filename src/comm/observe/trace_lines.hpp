// Events of one rank's trace, a line of JSON each, as the Chrome trace format has them; what each kind of trace adds
// are its own events.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "comm/observe/output_name.hpp"

namespace tensorwire::comm {

class TraceLines {
 public:
  [[nodiscard]] std::string take() && { return std::move(text_); }

 protected:
  /// `who` outlives it.
  explicit TraceLines(const Identity& who);

  /// @param fields of the object, without its braces
  void line(const std::string& fields);
  /// A name of the process, or of a track.
  void metadata(std::string_view what, int track, const std::string& name);

  const Identity& who_;

 private:
  std::string text_;
};

}  // namespace tensorwire::comm
