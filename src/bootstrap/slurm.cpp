#include "bootstrap/slurm.hpp"

#include <charconv>

namespace tensorwire::bootstrap {

namespace {

constexpr int kMaxNodes = 1 << 20;

bool take(std::string_view& text, char expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || value < 1 || value > kMaxNodes) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return value;
}

}  // namespace

std::optional<std::string> first_slurm_host(std::string_view node_list) {
  const std::size_t end = node_list.find_first_of("[,");
  std::string host{node_list.substr(0, end)};
  if (end == std::string_view::npos || node_list[end] == ',') {
    if (host.empty()) return std::nullopt;
    return host;
  }
  // The first number of the bracket, leading zeros kept, and what follows the bracket ("rack[1-2]-node[3-4]").
  const std::string_view bracket = node_list.substr(end + 1);
  const std::size_t number_end = bracket.find_first_of("-,]");
  const std::size_t close = bracket.find(']');
  if (number_end == 0 || number_end == std::string_view::npos || close == std::string_view::npos) return std::nullopt;
  host += bracket.substr(0, number_end);
  const std::string_view rest = bracket.substr(close + 1);
  if (rest.empty() || rest.front() == ',') return host;
  const auto tail = first_slurm_host(rest);
  if (!tail) return std::nullopt;
  return host + *tail;
}

std::optional<std::vector<int>> slurm_tasks_per_node(std::string_view text) {
  std::vector<int> tasks;
  do {
    const auto count = take_number(text);
    if (!count) return std::nullopt;
    int repeats = 1;
    if (take(text, '(')) {
      const bool has_x = take(text, 'x');
      const auto times = has_x ? take_number(text) : std::nullopt;
      if (!times || !take(text, ')')) return std::nullopt;
      repeats = *times;
    }
    tasks.insert(tasks.end(), static_cast<std::size_t>(repeats), *count);
  } while (take(text, ','));
  if (!text.empty()) return std::nullopt;
  return tasks;
}

}  // namespace tensorwire::bootstrap
