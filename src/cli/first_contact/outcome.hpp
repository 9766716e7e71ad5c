// What became of a step of a first contact.
#pragma once

#include <string>

namespace tensorwire::cli {

struct Outcome {
  enum class Kind { kFine, kBad, kFailed, kNotHere };
  Kind kind = Kind::kFine;
  std::string line;  ///< what there is to know, in one line

  [[nodiscard]] const char* word() const noexcept {
    switch (kind) {
      case Kind::kFine:
        return "fine";
      case Kind::kBad:
        return "BAD";
      case Kind::kFailed:
        return "FAILED";
      case Kind::kNotHere:
        break;
    }
    return "not here";
  }
};

}  // namespace tensorwire::cli
