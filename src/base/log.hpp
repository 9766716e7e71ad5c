// One line at a time to stderr, "[tensorwire] warning: ..." or, with TENSORWIRE_LOG_FORMAT=json, an object with time
// (UTC), level, process, thread and message. The logger is private to the library that holds this code: it touches no
// registry or global of a host program that may use the same logging library. Never on the data path.
#pragma once

#include <string_view>

namespace tensorwire {

enum class LogLevel { debug, info, warn, error, off };

/// Thread-safe; never throws. What is below the level is dropped; the level is TENSORWIRE_LOG, else warn.
void log_debug(std::string_view message) noexcept;
void log_info(std::string_view message) noexcept;
void log_warn(std::string_view message) noexcept;
void log_error(std::string_view message) noexcept;

/// True when a message of this level would be written: ask before formatting something costly.
[[nodiscard]] bool log_enabled(LogLevel level) noexcept;

/// Overrides TENSORWIRE_LOG for this process (`--verbose`).
void set_log_level(LogLevel level) noexcept;

}  // namespace tensorwire
