#include "cli/first_contact/scrub.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <set>

namespace tensorwire::cli {
namespace {

/// A shorter value is no secret, and would be found everywhere.
constexpr std::size_t kShortestSecret = 4;
constexpr std::size_t kPairsOfAnAddress = 6;

bool sounds_secret(std::string_view name) {
  std::string upper{name};
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  constexpr std::array kWords = {"SECRET",      "TOKEN",   "PASSWORD", "PASSWD",    "CREDENTIAL",
                                 "PRIVATE_KEY", "API_KEY", "APIKEY",   "ACCESS_KEY"};
  return std::ranges::any_of(kWords, [&](const char* word) { return upper.find(word) != std::string::npos; });
}

std::string replaced(std::string text, const std::string& what, const std::string& by, bool (*fits)(char, char)) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at)) {
    const char before = at == 0 ? ' ' : text[at - 1];
    const char after = at + what.size() < text.size() ? text[at + what.size()] : ' ';
    if (!fits(before, after)) {
      ++at;
      continue;
    }
    text.replace(at, what.size(), by);
    at += by.size();
  }
  return text;
}

bool ends_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_'; }

bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

/// How many characters from `at` on are pairs of digits with one kind of mark between; 0: too few pairs.
std::size_t hardware_address_at(std::string_view text, std::size_t at) {
  std::size_t pairs = 0;
  std::size_t end = at;
  char mark = 0;
  for (std::size_t i = at; i + 1 < text.size() && is_hex(text[i]) && is_hex(text[i + 1]); i += 3) {
    ++pairs;
    end = i + 2;
    const char next = end < text.size() ? text[end] : ' ';
    if (mark == 0 && (next == ':' || next == '-')) mark = next;
    if (next != mark || mark == 0) break;
  }
  const bool alone = end >= text.size() || !is_hex(text[end]);
  return pairs >= kPairsOfAnAddress && alone ? end - at : 0;
}

}  // namespace

std::vector<std::string> secrets_in(const bootstrap::Environment& environment) {
  std::vector<std::string> secrets;
  for (const auto& [name, value] : environment) {
    if (!sounds_secret(name)) continue;
    if (name.ends_with("_FILE")) {
      std::ifstream file{value};
      std::string line;
      if (std::getline(file, line) && line.size() >= kShortestSecret) secrets.push_back(line);
    } else if (value.size() >= kShortestSecret) {
      secrets.push_back(value);
    }
  }
  // The longest first: one may be part of another.
  std::ranges::sort(secrets, [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return secrets;
}

std::string without_secrets(std::string text, const std::vector<std::string>& secrets) {
  for (const std::string& secret : secrets) {
    text = replaced(std::move(text), secret, "(removed)", [](char, char) { return true; });
  }
  return text;
}

std::string without_hardware_addresses(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const bool begins = is_hex(text[at]) && (at == 0 || (!is_hex(text[at - 1]) && text[at - 1] != ':'));
    const std::size_t length = begins ? hardware_address_at(text, at) : 0;
    if (length > 0) {
      out += "(hardware address)";
      at += length;
    } else {
      out += text[at++];
    }
  }
  return out;
}

std::string with_other_names(std::string text, const Replacements& names) {
  for (const auto& [name, other] : names) {
    text = replaced(std::move(text), name, other,
                    [](char before, char after) { return ends_word(before) && ends_word(after); });
  }
  return text;
}

Replacements names_for(const std::vector<std::string>& hosts) {
  Replacements names;
  std::set<std::string> known;
  for (const std::string& host : hosts) {
    if (host.empty() || !known.insert(host).second) continue;
    const std::string other = fmt::format("host{}", known.size() - 1);
    names.emplace_back(host, other);
    const std::string first_part = host.substr(0, host.find('.'));
    if (first_part != host && !first_part.empty()) names.emplace_back(first_part, other);
  }
  std::ranges::stable_sort(names, [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  return names;
}

}  // namespace tensorwire::cli
