#include "comm/tuning.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/env.hpp"
#include "base/error.hpp"
#include "base/random.hpp"

namespace tensorwire::comm {

namespace {

constexpr std::string_view kTable = "topology";

std::uint64_t hash_of(const std::set<std::string>& hosts) {
  std::uint64_t hash = 0;
  for (const std::string& host : hosts) {
    for (const char c : host) hash = mix64(hash ^ static_cast<unsigned char>(c));
    hash = mix64(hash + 1);
  }
  return hash;
}

/// "RoCEv2 packets (asked for)" -> "rocev2-packets"; addresses are no kind.
std::string kind_of(std::string_view path) {
  std::string kind;
  for (const char c : path.substr(0, path.find_first_of("(0123456789", path.starts_with("RoCEv2") ? 6 : 0))) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (letter) kind += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (!letter && !kind.empty() && kind.back() != '-') kind += '-';
  }
  while (kind.ends_with('-')) kind.pop_back();
  return kind;
}

toml::table parse(const std::string& file) try {
  if (!std::filesystem::exists(file)) return {};
  return toml::parse_file(file);
} catch (const toml::parse_error& error) {
  throw Error{"read " + file, fmt::format("line {}: {}", error.source().begin.line, error.description()),
              "Mend it, or delete it and run `tensorwire tune` again"};
} catch (const std::filesystem::filesystem_error& error) {
  throw Error{"read " + file, error.what()};
}

Tuning read(const std::string& file, const toml::table& table) {
  Tuning tuning;
  const auto number = [&](std::string_view name, auto& value) {
    const toml::node* node = table.get(name);
    if (node == nullptr) return;
    const auto read = node->value<double>();
    if (!read || !(*read >= 0)) {
      throw Error{"read " + file, fmt::format("line {}: {} is not a number from 0 up", node->source().begin.line, name),
                  "Mend it, or delete it and run `tensorwire tune` again"};
    }
    value = static_cast<std::decay_t<decltype(value)>>(*read);
  };
  number("ranks", tuning.ranks);
  number("start_us", tuning.cost.start_us);
  number("hop_us", tuning.cost.hop_us);
  number("message_us", tuning.cost.message_us);
  number("arrival_us", tuning.cost.arrival_us);
  number("wire_bytes_per_us", tuning.cost.wire_bytes_per_us);
  number("copy_bytes_per_us", tuning.cost.copy_bytes_per_us);
  number("reduce_bytes_per_us", tuning.cost.reduce_bytes_per_us);
  number("mtu", tuning.cost.mtu);
  number("one_shot_bytes", tuning.thresholds.one_shot_bytes);
  number("one_shot_bytes_pair", tuning.thresholds.one_shot_bytes_pair);
  number("mean_error", tuning.mean_error);
  for (const double divisor :
       {tuning.cost.wire_bytes_per_us, tuning.cost.copy_bytes_per_us, tuning.cost.reduce_bytes_per_us}) {
    if (divisor <= 0) throw Error{"read " + file, "a speed is 0", "Run `tensorwire tune` again"};
  }
  return tuning;
}

toml::table written(const Tuning& tuning) {
  const auto integer = [](std::uint64_t value) { return static_cast<std::int64_t>(value); };
  return toml::table{
      {"ranks", integer(tuning.ranks)},
      {"start_us", tuning.cost.start_us},
      {"hop_us", tuning.cost.hop_us},
      {"message_us", tuning.cost.message_us},
      {"arrival_us", tuning.cost.arrival_us},
      {"wire_bytes_per_us", tuning.cost.wire_bytes_per_us},
      {"copy_bytes_per_us", tuning.cost.copy_bytes_per_us},
      {"reduce_bytes_per_us", tuning.cost.reduce_bytes_per_us},
      {"mtu", integer(tuning.cost.mtu)},
      {tuning.ranks <= 2 ? "one_shot_bytes_pair" : "one_shot_bytes",
       integer(tuning.ranks <= 2 ? tuning.thresholds.one_shot_bytes_pair : tuning.thresholds.one_shot_bytes)},
      {"mean_error", tuning.mean_error},
  };
}

}  // namespace

std::string Topology::key() const {
  std::set<std::string> kinds;
  for (const std::string& path : paths) kinds.insert(kind_of(path));
  std::string text = fmt::format("{}-ranks", hosts.size());
  for (const std::string& kind : kinds) text += "-" + kind;
  return text + fmt::format("-{:08x}", hash_of({hosts.begin(), hosts.end()}) >> 32);
}

std::string tune_file() {
  if (const auto file = env::get("TENSORWIRE_TUNE")) return *file == "off" ? "" : *file;
  if (const char* folder = std::getenv("XDG_CONFIG_HOME"); folder != nullptr && *folder != '\0') {
    return std::string{folder} + "/tensorwire/tune.toml";
  }
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? "" : std::string{home} + "/.config/tensorwire/tune.toml";
}

std::optional<Tuning> load_tuning(const std::string& file, std::string_view key) {
  if (file.empty()) return std::nullopt;
  const toml::table all = parse(file);
  const toml::table* entry = all[kTable][key].as_table();
  if (entry == nullptr) return std::nullopt;
  return read(file, *entry);
}

std::optional<std::pair<std::string, Tuning>> find_tuning(const std::string& file, std::uint32_t ranks) {
  if (file.empty()) return std::nullopt;
  const toml::table all = parse(file);
  const toml::table* topologies = all[kTable].as_table();
  if (topologies == nullptr) return std::nullopt;
  for (const auto& [key, node] : *topologies) {
    const toml::table* entry = node.as_table();
    if (entry == nullptr) continue;
    if (Tuning tuning = read(file, *entry); tuning.ranks == ranks) return std::pair{std::string{key.str()}, tuning};
  }
  return std::nullopt;
}

void save_tuning(const std::string& file, std::string_view key, const Tuning& tuning) {
  toml::table all = parse(file);
  if (!all.contains(kTable)) all.insert(kTable, toml::table{});
  toml::table* topologies = all[kTable].as_table();
  if (topologies == nullptr) throw Error{"write " + file, "`topology` is no table there", "Delete the file"};
  topologies->insert_or_assign(key, written(tuning));
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path{file}.parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  // Written beside and renamed: a reader sees the old file or the new one.
  const std::string beside = file + ".new";
  std::ofstream stream{beside};
  stream << "# Written by `tensorwire tune`. Times in microseconds, speeds in bytes per microsecond.\n" << all << "\n";
  stream.close();
  if (!stream) throw system_error("write " + beside, errno, "Set TENSORWIRE_TUNE to a file that can be written");
  std::filesystem::rename(beside, file, error);
  if (error) throw Error{"write " + file, error.message()};
}

}  // namespace tensorwire::comm
