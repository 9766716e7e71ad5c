#include "host/tree/tree.hpp"

#include "base/error.hpp"

namespace tensorwire::host {

std::string Answer::why() const {
  if (error == 0) return {};
  if (error == kNotRecorded) return "not in this recording";
  return text.empty() ? errno_text(error) : text + ", " + errno_text(error);
}

Answer Tree::tool(std::string_view tool, std::string_view subject) {
  std::string name{tool};
  if (!subject.empty()) name.append(" ").append(subject);
  return answer(Ask::kTool, name);
}

}  // namespace tensorwire::host
