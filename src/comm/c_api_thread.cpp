#include "comm/c_api_thread.hpp"

#include <exception>
#include <utility>

namespace {

thread_local std::string last_line;
thread_local std::string shown;

}  // namespace

void set_thread_line(std::string line) noexcept { last_line = std::move(line); }

const char* thread_line() noexcept {
  return shown_line([] { return last_line; });
}

const char* shown_line(const std::function<std::string()>& line) noexcept try {
  shown = line();
  return shown.c_str();
} catch (const std::exception&) {
  return "out of memory";
}
