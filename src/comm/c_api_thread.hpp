// What the C API keeps for each calling thread: the error line of calls without a communicator, and the text that
// twGetLastError showed last.
#pragma once

#include <functional>
#include <string>

void set_thread_line(std::string line) noexcept;
[[nodiscard]] const char* thread_line() noexcept;

/// Keeps the line alive until this thread's next call.
[[nodiscard]] const char* shown_line(const std::function<std::string()>& line) noexcept;
