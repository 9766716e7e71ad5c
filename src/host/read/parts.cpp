#include "host/read/parts.hpp"

#include <cerrno>

namespace tensorwire::host {

Fact<std::string> line_in(Tree& tree, const std::string& path) {
  return fact_in_file(tree, path, [](std::string_view text) { return std::optional{std::string{trimmed(text)}}; });
}

Fact<std::vector<std::string>> names_in(Tree& tree, const std::string& path) {
  return fact_of(tree.names(path), path, [](std::string_view text) {
    std::vector<std::string> names;
    for (const std::string_view name : lines_of(text)) names.emplace_back(name);
    return std::optional{names};
  });
}

Fact<Counters> counters_in(Tree& tree, const std::string& folder) {
  const auto names = names_in(tree, folder);
  if (!names) return Fact<Counters>::unknown(names.why(), folder);
  Counters counters;
  for (const std::string& name : *names) {
    if (const auto value = number_in_file<std::uint64_t>(tree, folder + "/" + name)) counters[name] = *value;
  }
  return {std::move(counters), folder};
}

Fact<bool> exists(const Answer& answer, const std::string& where) {
  if (answer.ok()) return {true, where};
  if (answer.error == ENOENT || answer.error == ENOTDIR) return {false, where};
  return Fact<bool>::unknown(answer.why(), where);
}

Fact<std::string> target_name(Tree& tree, const std::string& path) {
  return fact_of(tree.target(path), path, [](std::string_view target) {
    const auto slash = target.rfind('/');
    return slash == std::string_view::npos ? std::optional<std::string>{} : std::string{target.substr(slash + 1)};
  });
}

}  // namespace tensorwire::host
