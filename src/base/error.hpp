// The one exception type of Tensorwire. An Error is one line that a person can act on: what failed, who or
// where, why, and what to do. Set-up code throws it; the data path returns status and never throws.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace tensorwire {

/// The parts of an error line, kept apart so that callers (`--json`, tests) need not parse the text.
struct ErrorParts {
  std::string what;    ///< the operation that failed: "open device soft3"
  std::string why;     ///< the cause, errno text included: "no such device"
  std::string remedy;  ///< what to do about it; may be empty
};

/// One line: "<what>: <why>. <remedy>".
class Error : public std::runtime_error {
 public:
  explicit Error(ErrorParts parts);
  Error(std::string what, std::string why, std::string remedy = {});

  [[nodiscard]] const ErrorParts& parts() const noexcept { return parts_; }

 private:
  ErrorParts parts_;
};

/// An Error whose `why` is the text of `errno_value` (for example EINVAL).
[[nodiscard]] Error system_error(std::string what, int errno_value, std::string remedy = {});

/// "Invalid argument (EINVAL)"; never a bare number.
[[nodiscard]] std::string errno_text(int errno_value);

}  // namespace tensorwire
