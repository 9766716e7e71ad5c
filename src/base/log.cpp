// This file alone sees spdlog. It is compiled with hidden visibility (see CMakeLists.txt), so that header-only spdlog
// inside our libraries never meets another copy in the program that loads them.
#define SPDLOG_HEADER_ONLY
#include "base/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/env.hpp"
#include "base/json_text.hpp"

namespace tensorwire {

namespace {

constexpr auto kLevels = std::to_array<std::pair<std::string_view, LogLevel>>({{"debug", LogLevel::debug},
                                                                               {"info", LogLevel::info},
                                                                               {"warn", LogLevel::warn},
                                                                               {"error", LogLevel::error},
                                                                               {"off", LogLevel::off}});

constexpr spdlog::level::level_enum to_spdlog(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warn:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      break;
  }
  return spdlog::level::off;
}

std::optional<LogLevel> level_named(std::string_view name) noexcept {
  for (const auto& [text, level] : kLevels) {
    if (text == name) return level;
  }
  return std::nullopt;
}

/// The logger, and how it wants messages: as they are, or quoted for JSON.
struct Output {
  std::unique_ptr<spdlog::logger> logger;
  bool json = false;

  void write(spdlog::level::level_enum level, std::string_view message) const {
    if (json) {
      logger->log(level, json_quoted(message));
    } else {
      logger->log(level, spdlog::string_view_t{message.data(), message.size()});
    }
  }
};

void choose_format(Output& output) {
  const std::string format = env::get("TENSORWIRE_LOG_FORMAT").value_or("text");
  output.json = format == "json";
  if (output.json) {
    output.logger->set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l","process":%P,"thread":%t,"message":%v})",
                               spdlog::pattern_time_type::utc);
  } else {
    output.logger->set_pattern("[tensorwire] %l: %v");
  }
  if (!output.json && format != "text") {
    output.logger->warn("TENSORWIRE_LOG_FORMAT=" + format + " is not one of text, json; using text");
  }
}

Output* make_output() {
  auto output = std::make_unique<Output>();
  output->logger = std::make_unique<spdlog::logger>("tensorwire", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  const auto& created = output->logger;
  created->set_level(spdlog::level::warn);
  choose_format(*output);
  if (const auto wanted = env::get("TENSORWIRE_LOG")) {
    if (const auto level = level_named(*wanted)) {
      created->set_level(to_spdlog(*level));
    } else {
      output->write(spdlog::level::warn,
                    "TENSORWIRE_LOG=" + *wanted + " is not one of off, error, warn, info, debug; using warn");
    }
  }
  return output.release();
}

/// Never destroyed: threads may log while the process's static objects are being torn down.
Output& output() {
  static Output* const instance = make_output();
  return *instance;
}

void write(LogLevel level, std::string_view message) noexcept {
  try {
    if (output().logger->should_log(to_spdlog(level))) output().write(to_spdlog(level), message);
  } catch (...) {  // NOLINT(bugprone-empty-catch): a message that cannot be written must not end the program
  }
}

}  // namespace

void log_debug(std::string_view message) noexcept { write(LogLevel::debug, message); }
void log_info(std::string_view message) noexcept { write(LogLevel::info, message); }
void log_warn(std::string_view message) noexcept { write(LogLevel::warn, message); }
void log_error(std::string_view message) noexcept { write(LogLevel::error, message); }

bool log_enabled(LogLevel level) noexcept {
  try {
    return level != LogLevel::off && output().logger->should_log(to_spdlog(level));
  } catch (...) {
    return false;
  }
}

void set_log_level(LogLevel level) noexcept {
  try {
    output().logger->set_level(to_spdlog(level));
  } catch (...) {  // NOLINT(bugprone-empty-catch): as above
  }
}

}  // namespace tensorwire
