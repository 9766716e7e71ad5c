#include "fabric/scenario_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "base/units.hpp"

namespace tensorwire::fabric {

namespace {

const toml::table& no_table() {
  static const toml::table none;
  return none;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

const toml::node* ScenarioKeys::find(const char* key) {
  known_.emplace_back(key);
  return table_.get(key);
}

std::string ScenarioKeys::name_of(std::string_view key) const {
  return path_.empty() ? std::string{key} : path_ + "." + std::string{key};
}

void ScenarioKeys::refuse(const char* key, const std::string& why, const std::string& remedy) const {
  const toml::node* const node = table_.get(key);
  const auto line = (node != nullptr ? *node : static_cast<const toml::node&>(table_)).source().begin.line;
  throw Error{"read " + file_, fmt::format("line {}: {}: {}", line, name_of(key), why), remedy};
}

void ScenarioKeys::done() const {
  for (const auto& [key, node] : table_) {
    if (std::ranges::find(known_, key.str()) != known_.end()) continue;
    throw Error{"read " + file_,
                fmt::format("line {}: {}: there is no such key", node.source().begin.line, name_of(key.str())),
                "Allowed: " + joined(known_)};
  }
}

std::string ScenarioKeys::text(const char* key, const std::string& otherwise) {
  const toml::node* const node = find(key);
  if (node == nullptr) return otherwise;
  if (!node->is_string()) refuse(key, "it is no text", "Put it in quotes");
  return node->value_or(otherwise);
}

std::size_t ScenarioKeys::choice(const char* key, const std::vector<std::string>& choices, std::size_t otherwise) {
  const std::string chosen = text(key, choices[otherwise]);
  const auto found = std::ranges::find(choices, chosen);
  if (found == choices.end()) refuse(key, fmt::format("\"{}\" is not known", chosen), "Allowed: " + joined(choices));
  return static_cast<std::size_t>(found - choices.begin());
}

std::uint64_t ScenarioKeys::integer(const char* key, std::uint64_t otherwise, std::uint64_t least, std::uint64_t most) {
  const toml::node* const node = find(key);
  if (node == nullptr) return otherwise;
  const std::string allowed = fmt::format("Allowed: whole numbers from {} to {}", least, most);
  if (!node->is_integer()) refuse(key, "it is no whole number", allowed);
  const std::int64_t value = node->value_or(std::int64_t{-1});
  const bool good =
      value >= 0 && static_cast<std::uint64_t>(value) >= least && static_cast<std::uint64_t>(value) <= most;
  if (!good) refuse(key, fmt::format("{} is out of range", value), allowed);
  return static_cast<std::uint64_t>(value);
}

double ScenarioKeys::number(const char* key, double otherwise, double least, double most) {
  const toml::node* const node = find(key);
  if (node == nullptr) return otherwise;
  const std::string allowed = fmt::format("Allowed: numbers from {} to {}", least, most);
  double value = node->value_or(least - 1);
  if (const std::string fraction = node->value_or(std::string{}); node->is_string() && fraction.starts_with("1/")) {
    unsigned divisor = 0;
    std::from_chars(fraction.data() + 2, fraction.data() + fraction.size(), divisor);
    if (divisor != 0) value = 1.0 / divisor;
  } else if (!node->is_number()) {
    refuse(key, "it is no number", allowed);
  }
  if (!(value >= least && value <= most)) refuse(key, fmt::format("{} is out of range", value), allowed);
  return value;
}

bool ScenarioKeys::flag(const char* key, bool otherwise) {
  const toml::node* const node = find(key);
  if (node == nullptr) return otherwise;
  if (!node->is_boolean()) refuse(key, "it is neither true nor false", "Allowed: true, false");
  return node->value_or(otherwise);
}

std::uint64_t ScenarioKeys::bytes(const char* key, std::uint64_t otherwise) {
  const toml::node* const node = find(key);
  if (node == nullptr) return otherwise;
  if (node->is_integer() && node->value_or(std::int64_t{-1}) >= 0)
    return static_cast<std::uint64_t>(node->value_or(std::int64_t{0}));
  if (node->is_string()) try {
      return parse_bytes(node->value_or(std::string{}));
    } catch (const Error& error) {
      refuse(key, error.parts().why, "Allowed: 131072, \"128KiB\", \"1.5MiB\"");
    }
  refuse(key, "it is no size", "Allowed: 131072, \"128KiB\", \"1.5MiB\"");
}

Ps ScenarioKeys::duration(const char* key, Ps otherwise) {
  const std::string given = text(key, "");
  if (given.empty() && !has(key)) return otherwise;
  try {
    return parse_duration(given);
  } catch (const Error& error) {
    refuse(key, error.parts().why, "Allowed: \"500ns\", \"75us\", \"12ms\"");
  }
}

Ps ScenarioKeys::rate(const char* key, Ps otherwise) {
  constexpr const char* kAllowed = "Allowed: \"10G\" to \"800G\", such that a byte takes whole picoseconds";
  const std::string given = text(key, "");
  if (given.empty() && !has(key)) return otherwise;
  Ps gbps = 0;
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), gbps);
  const bool good =
      error == std::errc{} && std::string_view{end} == "G" && gbps >= 1 && gbps <= 800 && 8000 % gbps == 0;
  if (!good) refuse(key, fmt::format("\"{}\" is no rate", given), kAllowed);
  return 8000 / gbps;
}

std::vector<std::uint32_t> ScenarioKeys::list(const char* key, std::uint32_t end,
                                              const std::vector<std::uint32_t>& otherwise) {
  const std::string allowed = fmt::format("Allowed: numbers below {}, as [0, 1, 8] or \"0-7, 12\"", end);
  const toml::node* const node = find(key);
  if (node == nullptr && !otherwise.empty()) return otherwise;
  if (node == nullptr) refuse(key, "it is missing", allowed);
  std::vector<std::uint32_t> numbers;
  const auto add = [&](std::uint64_t value) {
    if (value >= end) refuse(key, fmt::format("{} is out of range", value), allowed);
    numbers.push_back(static_cast<std::uint32_t>(value));
  };
  if (node->is_integer()) {
    add(static_cast<std::uint64_t>(node->value_or(std::int64_t{-1})));
  } else if (const toml::array* const array = node->as_array()) {
    for (const toml::node& element : *array) {
      if (!element.is_integer()) refuse(key, "an element is no whole number", allowed);
      add(static_cast<std::uint64_t>(element.value_or(std::int64_t{-1})));
    }
  } else {
    const std::string ranges = node->value_or(std::string{});
    for (const char* at = ranges.data(); *at != '\0';) {
      std::uint64_t first = 0, last = 0;
      auto parsed = std::from_chars(at, ranges.data() + ranges.size(), first);
      if (parsed.ec != std::errc{}) refuse(key, fmt::format("\"{}\" is no list", ranges), allowed);
      last = first;
      if (*parsed.ptr == '-') parsed = std::from_chars(parsed.ptr + 1, ranges.data() + ranges.size(), last);
      if (parsed.ec != std::errc{} || last >= end) refuse(key, fmt::format("\"{}\" is no list", ranges), allowed);
      for (; first <= last; ++first) add(first);
      for (at = parsed.ptr; *at == ',' || *at == ' ';) ++at;
    }
  }
  if (numbers.empty()) refuse(key, "it is empty", allowed);
  return numbers;
}

ScenarioKeys ScenarioKeys::table(const char* key) {
  const toml::node* const node = find(key);
  if (node != nullptr && !node->is_table()) refuse(key, "it is no table", fmt::format("Write [{}]", name_of(key)));
  return {file_, node != nullptr ? *node->as_table() : no_table(), name_of(key)};
}

void ScenarioKeys::each(const char* key, const std::function<void(ScenarioKeys&)>& what) {
  const toml::node* const node = find(key);
  if (node == nullptr) return;
  if (!node->is_array_of_tables()) refuse(key, "it is no list of tables", fmt::format("Write [[{}]]", name_of(key)));
  for (const toml::node& element : *node->as_array()) {
    ScenarioKeys keys{file_, *element.as_table(), name_of(key)};
    what(keys);
    keys.done();
  }
}

}  // namespace tensorwire::fabric
