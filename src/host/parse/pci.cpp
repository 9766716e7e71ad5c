#include "host/parse/pci.hpp"

#include <array>

#include "host/parse/text.hpp"

namespace tensorwire::host {

namespace {

constexpr std::size_t kStandardSize = 256;
constexpr std::size_t kExtendedSize = 4096;
constexpr std::uint8_t kPciExpress = 0x10;
constexpr std::uint16_t kAcs = 0x000d;
constexpr std::uint32_t kRelaxedOrdering = 1 << 4;

/// Little endian, as configuration space is; 0 beyond the end.
std::uint32_t bytes_at(std::string_view config, std::size_t at, std::size_t count) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < count && at + i < config.size(); ++i) {
    value |= std::uint32_t{static_cast<std::uint8_t>(config[at + i])} << (8 * i);
  }
  return value;
}

bool is_pci_address(std::string_view part) {
  return part.size() >= 12 && part[part.size() - 2] == '.' && part[part.size() - 5] == ':' &&
         part[part.size() - 8] == ':';
}

}  // namespace

std::optional<Acs> acs_in(std::string_view config) {
  if (config.size() < kExtendedSize) return std::nullopt;
  std::size_t at = kStandardSize;
  // A list that runs in a circle ends here after as many steps as there is room for.
  for (std::size_t steps = 0; at >= kStandardSize && steps < kExtendedSize / 4; ++steps) {
    const std::uint32_t head = bytes_at(config, at, 4);
    if ((head & 0xffff) == kAcs) return Acs{true, static_cast<std::uint16_t>(bytes_at(config, at + 6, 2))};
    at = head >> 20;
  }
  return Acs{};
}

std::optional<bool> relaxed_ordering_in(std::string_view config) {
  if (config.size() < kStandardSize) return std::nullopt;
  std::size_t at = bytes_at(config, 0x34, 1);
  for (std::size_t steps = 0; at != 0 && steps < kStandardSize / 2; ++steps) {
    if (bytes_at(config, at, 1) == kPciExpress) return (bytes_at(config, at + 8, 2) & kRelaxedOrdering) != 0;
    at = bytes_at(config, at + 1, 1);
  }
  return std::nullopt;
}

std::optional<PciPath> path_in(std::string_view sysfs_path) {
  PciPath path;
  const auto parts = split(sysfs_path, '/');
  for (const std::string_view part : parts) {
    if (part.starts_with("pci") && part.find(':') != std::string_view::npos) path.root = part;
    if (!path.root.empty() && is_pci_address(part)) path.bridges.emplace_back(part);
  }
  if (path.bridges.empty()) return std::nullopt;
  path.bridges.pop_back();
  return path;
}

std::optional<std::uint64_t> bar1_in(std::string_view resource) {
  const auto lines = lines_of(resource);
  if (lines.size() < 2) return std::nullopt;
  const auto words = words_of(lines[1]);
  if (words.size() < 2 || !words[0].starts_with("0x") || !words[1].starts_with("0x")) return std::nullopt;
  const auto begin = number_in<std::uint64_t>(words[0].substr(2), 16);
  const auto end = number_in<std::uint64_t>(words[1].substr(2), 16);
  if (!begin || !end || *end < *begin) return std::nullopt;
  return *end == 0 ? 0 : *end - *begin + 1;
}

}  // namespace tensorwire::host
