#include "verbs/sysfs.hpp"

#include <fmt/format.h>

#include <charconv>
#include <fstream>

namespace tensorwire::verbs {

std::optional<std::string> read_port_attribute(std::string_view device, unsigned port, std::string_view attribute) {
  std::ifstream file{fmt::format("/sys/class/infiniband/{}/ports/{}/{}", device, port, attribute)};
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<std::uint64_t> read_port_counter(std::string_view device, unsigned port, std::string_view name) {
  for (const char* folder : {"hw_counters", "counters"}) {
    const auto text = read_port_attribute(device, port, fmt::format("{}/{}", folder, name));
    if (!text) continue;
    std::uint64_t value = 0;
    const auto [stop, code] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (code == std::errc{}) return value;
  }
  return std::nullopt;
}

}  // namespace tensorwire::verbs
