#include "host/configure/action.hpp"

#include <fmt/format.h>

#include "host/parse/text.hpp"

namespace tensorwire::host {

/// Words come from recipes and from names that the kernel gave, none of which needs quotes.
std::string Action::shell() const {
  if (program.empty()) return fmt::format("echo {} >{}", text, path);
  std::string line;
  for (const std::string& word : program) line.append(line.empty() ? "" : " ").append(word);
  return line;
}

Action action_of(const std::string& line) {
  const auto words = words_of(line);
  if (words.size() == 3 && words[0] == ">") return {{}, std::string{words[1]}, std::string{words[2]}};
  Action action;
  for (const auto word : words) action.program.emplace_back(word);
  return action;
}

}  // namespace tensorwire::host
