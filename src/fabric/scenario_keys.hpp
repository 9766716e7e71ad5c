// One table of a scenario file, key by key: each is asked for with its default and what is allowed; done() refuses
// those that nobody asked for. Errors name file, line and key. Internal to scenario_file.cpp.
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.hpp"

namespace tensorwire::fabric {

class ScenarioKeys {
 public:
  /// @param path "switch.ecn"; empty for the file itself.
  ScenarioKeys(const std::string& file, const toml::table& table, std::string path)
      : file_(file), table_(table), path_(std::move(path)) {}

  [[nodiscard]] std::string text(const char* key, const std::string& otherwise);
  /// One of `choices`; its number.
  [[nodiscard]] std::size_t choice(const char* key, const std::vector<std::string>& choices, std::size_t otherwise);
  [[nodiscard]] std::uint64_t integer(const char* key, std::uint64_t otherwise, std::uint64_t least,
                                      std::uint64_t most);
  /// 0.25 or "1/64".
  [[nodiscard]] double number(const char* key, double otherwise, double least, double most);
  [[nodiscard]] bool flag(const char* key, bool otherwise);
  /// "131072", "177KiB" or a whole number.
  [[nodiscard]] std::uint64_t bytes(const char* key, std::uint64_t otherwise);
  /// "500ns".
  [[nodiscard]] Ps duration(const char* key, Ps otherwise);
  /// A rate, "400G" in Gb/s, as picoseconds for a byte.
  [[nodiscard]] Ps rate(const char* key, Ps otherwise);
  /// Whole numbers below `end`: [0, 3, 8], or a text like "0-3, 8". Without a default it must be there.
  [[nodiscard]] std::vector<std::uint32_t> list(const char* key, std::uint32_t end,
                                                const std::vector<std::uint32_t>& otherwise = {});
  [[nodiscard]] bool has(const char* key) const { return table_.contains(key); }

  /// A table below this one, or an empty one.
  [[nodiscard]] ScenarioKeys table(const char* key);
  /// Each of [[key]].
  void each(const char* key, const std::function<void(ScenarioKeys&)>& what);

  /// Refuses keys that were not asked for.
  void done() const;
  /// @throws Error
  [[noreturn]] void refuse(const char* key, const std::string& why, const std::string& remedy) const;

 private:
  const toml::node* find(const char* key);
  [[nodiscard]] std::string name_of(std::string_view key) const;

  const std::string& file_;
  const toml::table& table_;
  std::string path_;
  std::vector<std::string> known_;
};

}  // namespace tensorwire::fabric
