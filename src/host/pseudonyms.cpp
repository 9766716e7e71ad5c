#include "host/pseudonyms.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.hpp"
#include "host/parse/text.hpp"
#include "host/tree/tools.hpp"

namespace tensorwire::host {

namespace {

constexpr unsigned kBits = 128;
constexpr unsigned kIpv4Begin = 96;

/// Every bit of the result depends on every bit of the number.
std::uint64_t mixed(std::uint64_t value) { return mix64(value + 0x9e3779b97f4a7c15); }

bool bit_of(const Address& address, unsigned bit) { return (address.bytes[bit / 8] >> (7 - bit % 8) & 1) != 0; }

/// The first bit that may change.
unsigned first_changed(const Address& address) {
  if (address.is_zero()) return kBits;
  if (address.is_ipv4()) {
    if (address.bytes[12] == 0 || address.bytes[12] == 127) return kBits;
    return address.is_ipv4_link_local() ? kIpv4Begin + 16 : kIpv4Begin;
  }
  return address.is_ipv6_link_local() ? 64 : 16;
}

Address from_route(std::uint32_t word) {
  Address address = *parse_address("0.0.0.0");
  for (unsigned i = 0; i < 4; ++i) address.bytes[12 + i] = static_cast<std::uint8_t>(word >> (8 * i));
  return address;
}

std::uint32_t to_route(const Address& address) {
  std::uint32_t word = 0;
  for (unsigned i = 0; i < 4; ++i) word |= std::uint32_t{address.bytes[12 + i]} << (8 * i);
  return word;
}

/// 39 characters, as sysfs writes GIDs.
std::string gid_text(const Address& address) {
  std::string text;
  for (std::size_t i = 0; i < 16; i += 2) {
    text += fmt::format("{}{:02x}{:02x}", i > 0 ? ":" : "", address.bytes[i], address.bytes[i + 1]);
  }
  return text + "\n";
}

}  // namespace

Pseudonyms::Pseudonyms(std::string_view key) : key_(key.empty() ? entropy64() : 0) {
  for (const char c : key) key_ = mixed(key_ ^ static_cast<unsigned char>(c));
}

Address Pseudonyms::of(const Address& address) const {
  Address changed = address;
  std::uint64_t prefix = key_;  // of the key and all bits before
  for (unsigned bit = 0; bit < kBits; ++bit) {
    if (bit >= first_changed(address) && (mixed(prefix) & 1) != 0)
      changed.bytes[bit / 8] ^= static_cast<std::uint8_t>(0x80 >> bit % 8);
    prefix = mixed(prefix ^ (bit_of(address, bit) ? 2 : 1));
  }
  return changed;
}

std::string Pseudonyms::in_text(std::string_view text) const {
  constexpr std::string_view kAddressCharacters = "0123456789.";
  std::string out;
  while (!text.empty()) {
    const std::string_view word =
        text.substr(0, std::max<std::size_t>(1, std::min(text.find_first_not_of(kAddressCharacters), text.size())));
    const auto address = word.find('.') != std::string_view::npos ? parse_address(word) : std::nullopt;
    out += address ? to_string(of(*address)) : std::string{word};
    text.remove_prefix(word.size());
  }
  return out;
}

std::string Pseudonyms::in_output(std::string_view text) const {
  constexpr std::string_view kParts = "0123456789abcdefABCDEF.:";
  std::string out;
  while (!text.empty()) {
    const std::string_view word =
        text.substr(0, std::max<std::size_t>(1, std::min(text.find_first_not_of(kParts), text.size())));
    const auto address = word.size() > 2 ? parse_address(word) : std::nullopt;
    out += !address                                       ? std::string{word}
           : address->is_ipv4() && word.starts_with("::") ? "::ffff:" + to_string(of(*address))
                                                          : to_string(of(*address));
    text.remove_prefix(word.size());
  }
  return out;
}

std::string Pseudonyms::in_ipv6_routes(std::string_view routes) const {
  std::string out;
  for (const std::string_view line : lines_of(routes)) {
    for (const std::string_view word : words_of(line)) {
      // 32 digits: an address without its colons.
      std::string spaced;
      for (std::size_t i = 0; word.size() == 32 && i < word.size(); i += 4)
        spaced.append(i > 0 ? ":" : "").append(word.substr(i, 4));
      const auto address = spaced.empty() ? std::nullopt : parse_address(spaced);
      std::string digits = address ? gid_text(of(*address)) : std::string{word};
      if (address) std::erase_if(digits, [](char c) { return c == ':' || c == '\n'; });
      out.append(out.empty() || out.ends_with('\n') ? "" : " ").append(digits);
    }
    out += "\n";
  }
  return out;
}

std::string Pseudonyms::in_routes(std::string_view routes) const {
  std::string out;
  for (const std::string_view line : lines_of(routes)) {
    const auto words = words_of(line);
    const auto network = words.size() < 8 ? std::nullopt : number_in<std::uint32_t>(words[1], 16);
    const auto gateway = words.size() < 8 ? std::nullopt : number_in<std::uint32_t>(words[2], 16);
    const auto mask = words.size() < 8 ? std::nullopt : number_in<std::uint32_t>(words[7], 16);
    if (!network || !gateway || !mask) {
      out.append(line).append("\n");
      continue;
    }
    out +=
        fmt::format("{}\t{:08X}\t{:08X}\t{}\t0\t0\t0\t{}\t0\t0\t0\n", words[0],
                    to_route(of(from_route(*network))) & *mask, to_route(of(from_route(*gateway))), words[3], words[7]);
  }
  return out;
}

void Pseudonyms::apply(Recording& recording) const {
  recording.filter([this](Ask kind, std::string_view name, Answer& answer) {
    if (!answer.ok()) return true;
    if (kind == Ask::kTool && (name == tool::kNeighbours || name == tool::kVerbsDevices || name == tool::kShowGids))
      answer.text = in_output(answer.text);
    if (kind != Ask::kText) return true;
    if (name.find("/gids/") != std::string_view::npos) {
      const auto address = parse_address(trimmed(answer.text));
      answer.text = address ? gid_text(of(*address)) : "";
    } else if (name == "/proc/net/route") {
      answer.text = in_routes(answer.text);
    } else if (name == "/proc/net/ipv6_route") {
      answer.text = in_ipv6_routes(answer.text);
    } else if (name == "/proc/target/environ" || (!name.starts_with("/sys/") && !name.starts_with("/proc/"))) {
      answer.text = in_text(answer.text);
    }
    return true;
  });
}

}  // namespace tensorwire::host
