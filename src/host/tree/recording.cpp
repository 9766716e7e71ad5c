#include "host/tree/recording.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "host/tree/escape.hpp"

namespace tensorwire::host {

namespace {

constexpr std::string_view kFirstLine = "tensorwire host recording 1";
constexpr std::string_view kNotRecordedName = "not-recorded";

std::string key_of(Ask kind, std::string_view name) {
  std::string key{static_cast<char>(kind)};
  key.append(name);
  return key;
}

std::string error_name(int error) {
  if (error == kNotRecorded) return std::string{kNotRecordedName};
  const char* name = strerrorname_np(error);
  return name != nullptr ? name : std::to_string(error);
}

int error_number(std::string_view name) {
  if (name == kNotRecordedName) return kNotRecorded;
  for (int error = 1; error < 200; ++error) {
    if (error_name(error) == name) return error;
  }
  return 0;
}

/// "<kind> <name> TAB <text>", or "<kind> <name> TAB !<error> TAB <text>".
std::string line_of(std::string_view key, const Answer& answer) {
  std::string line = fmt::format("{} {}\t", key.front(), escaped(key.substr(1)));
  if (!answer.ok()) line += "!" + error_name(answer.error) + "\t";
  return line + escaped(answer.text) + "\n";
}

/// The parts of such a line; false when it is not one.
bool read_line(std::string_view line, std::string& key, Answer& answer) {
  const auto tab = line.find('\t');
  if (line.size() < 3 || line[1] != ' ' || tab == std::string_view::npos) return false;
  if (std::string_view{"=/>?$"}.find(line[0]) == std::string_view::npos) return false;
  key = line[0] + unescaped(line.substr(2, tab - 2));
  std::string_view value = line.substr(tab + 1);
  if (value.starts_with('!')) {
    const auto end = value.find('\t');
    if (end == std::string_view::npos) return false;
    answer.error = error_number(value.substr(1, end - 1));
    if (answer.error == 0) return false;
    value.remove_prefix(end + 1);
  }
  answer.text = unescaped(value);
  return true;
}

}  // namespace

Answer Recording::answer(Ask kind, const std::string& name) {
  const auto found = answers_.find(key_of(kind, name));
  return found != answers_.end() ? found->second : Answer{{}, missing_};
}

void Recording::put(Ask kind, std::string_view name, Answer answer) {
  answers_.insert_or_assign(key_of(kind, name), std::move(answer));
}

void Recording::remove(Ask kind, std::string_view name) { answers_.erase(key_of(kind, name)); }

void Recording::filter(const std::function<bool(Ask, std::string_view, Answer&)>& change) {
  for (auto entry = answers_.begin(); entry != answers_.end();) {
    const std::string_view key = entry->first;
    const bool stays = change(static_cast<Ask>(key.front()), key.substr(1), entry->second);
    entry = stays ? std::next(entry) : answers_.erase(entry);
  }
}

std::string Recording::to_text() const {
  std::vector<std::string> lines;
  for (const auto& [key, answer] : answers_) lines.push_back(line_of(key, answer));
  std::ranges::sort(lines, {}, [](const std::string& line) { return std::string_view{line}.substr(2); });
  std::string text = std::string{kFirstLine} + "\n";
  for (const std::string& line : lines) text += line;
  return text;
}

Recording Recording::from_text(std::string_view text, std::string_view source) {
  Recording recording;
  if (!text.starts_with(kFirstLine)) {
    throw Error{fmt::format("read recording {}", source), fmt::format("it does not begin with \"{}\"", kFirstLine),
                "`tensorwire doctor record DIR` makes one"};
  }
  std::size_t number = 0;
  std::string key;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (++number == 1 || line.empty()) continue;
    Answer answer;
    if (!read_line(line, key, answer)) {
      throw Error{fmt::format("read recording {}", source), fmt::format("line {} is no part of a recording", number)};
    }
    recording.answers_.insert_or_assign(key, std::move(answer));
  }
  return recording;
}

Answer Recorder::answer(Ask kind, const std::string& name) {
  Answer given = inner_.answer(kind, name);
  recording_.put(kind, name, given);
  return given;
}

}  // namespace tensorwire::host
