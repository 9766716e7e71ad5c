#include "base/error.hpp"

#include <cstring>
#include <utility>

namespace tensorwire {

namespace {

std::string join(const ErrorParts& parts) {
  std::string line = parts.what + ": " + parts.why;
  if (!parts.remedy.empty()) line += ". " + parts.remedy;
  return line;
}

}  // namespace

Error::Error(ErrorParts parts) : std::runtime_error(join(parts)), parts_(std::move(parts)) {}

Error::Error(std::string what, std::string why, std::string remedy)
    : Error(ErrorParts{std::move(what), std::move(why), std::move(remedy)}) {}

Error system_error(std::string what, int errno_value, std::string remedy) {
  return Error{std::move(what), errno_text(errno_value), std::move(remedy)};
}

std::string errno_text(int errno_value) {
  const char* name = strerrorname_np(errno_value);
  const char* text = strerrordesc_np(errno_value);
  if (name == nullptr || text == nullptr) return "error " + std::to_string(errno_value);
  return std::string{text} + " (" + name + ")";
}

}  // namespace tensorwire
