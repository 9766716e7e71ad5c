// The grammar of TENSORWIRE_FAULTS.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"
#include "softhca/faults.hpp"

namespace tensorwire::softhca {
namespace {

constexpr std::string_view kWords = "drop, dup, reorder, corrupt, ce, delay, late_dma, gpu_write_late, seed, opcode";
constexpr std::string_view kExample = "drop=1%,delay=0.5%:200us,seed=7,opcode=WRITE_LAST_IMM";

struct NamedRate {
  std::string_view word;
  std::uint32_t FaultConfig::*rate;
};
constexpr auto kRates = std::to_array<NamedRate>({{"drop", &FaultConfig::drop},
                                                  {"dup", &FaultConfig::duplicate},
                                                  {"reorder", &FaultConfig::reorder},
                                                  {"corrupt", &FaultConfig::corrupt},
                                                  {"ce", &FaultConfig::congestion}});

struct NamedOpcode {
  std::string_view word;
  wire::Opcode opcode;
};
constexpr auto kOpcodes = std::to_array<NamedOpcode>({{"SEND_FIRST", wire::Opcode::kRcSendFirst},
                                                      {"SEND_MIDDLE", wire::Opcode::kRcSendMiddle},
                                                      {"SEND_LAST", wire::Opcode::kRcSendLast},
                                                      {"SEND_LAST_IMM", wire::Opcode::kRcSendLastImm},
                                                      {"SEND_ONLY", wire::Opcode::kRcSendOnly},
                                                      {"SEND_ONLY_IMM", wire::Opcode::kRcSendOnlyImm},
                                                      {"WRITE_FIRST", wire::Opcode::kRcWriteFirst},
                                                      {"WRITE_MIDDLE", wire::Opcode::kRcWriteMiddle},
                                                      {"WRITE_LAST", wire::Opcode::kRcWriteLast},
                                                      {"WRITE_LAST_IMM", wire::Opcode::kRcWriteLastImm},
                                                      {"WRITE_ONLY", wire::Opcode::kRcWriteOnly},
                                                      {"WRITE_ONLY_IMM", wire::Opcode::kRcWriteOnlyImm},
                                                      {"READ_REQUEST", wire::Opcode::kRcReadRequest},
                                                      {"READ_RESPONSE_FIRST", wire::Opcode::kRcReadResponseFirst},
                                                      {"READ_RESPONSE_MIDDLE", wire::Opcode::kRcReadResponseMiddle},
                                                      {"READ_RESPONSE_LAST", wire::Opcode::kRcReadResponseLast},
                                                      {"READ_RESPONSE_ONLY", wire::Opcode::kRcReadResponseOnly},
                                                      {"ACK", wire::Opcode::kRcAck},
                                                      {"ATOMIC_ACK", wire::Opcode::kRcAtomicAck},
                                                      {"COMPARE_SWAP", wire::Opcode::kRcCompareSwap},
                                                      {"FETCH_ADD", wire::Opcode::kRcFetchAdd},
                                                      {"CNP", wire::Opcode::kCnp}});

[[noreturn]] void fail(std::string_view item, const std::string& why, const std::string& remedy) {
  throw Error(fmt::format("TENSORWIRE_FAULTS: read \"{}\"", item), why, remedy);
}

std::string_view trim(std::string_view text) noexcept {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

/// The next piece of `rest` before `separator`, which is taken off it.
std::string_view split_off(std::string_view& rest, char separator) noexcept {
  const std::size_t at = rest.find(separator);
  const std::string_view piece = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view{} : rest.substr(at + 1);
  return trim(piece);
}

/// "0.5%" or "0.005" to parts per million.
std::uint32_t parse_rate(std::string_view item, std::string_view text) {
  const bool percent = text.ends_with('%');
  const std::string_view digits = percent ? text.substr(0, text.size() - 1) : text;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const double per_million = value * (percent ? 1e4 : 1e6);
  const std::string expected = "A rate is a percentage such as 0.5% or a fraction such as 0.005, at most 100%";
  if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size() || !std::isfinite(value)) {
    fail(item, fmt::format("\"{}\" is not a rate", text), expected);
  }
  if (per_million < 0 || per_million > 1e6) fail(item, fmt::format("the rate {} is out of range", text), expected);
  const double rounded = std::round(per_million);
  if (std::abs(rounded - per_million) > 1e-6)
    fail(item, fmt::format("the rate {} is finer than a millionth", text), expected);
  return static_cast<std::uint32_t>(rounded);
}

Ps parse_time(std::string_view item, std::string_view text) {
  constexpr Ps kLongest = 10 * kSecond;
  const std::string expected = "A duration is a number and a unit, such as 200us or 2ms, above 0 and at most 10s";
  Ps time = 0;
  try {
    time = parse_duration(text);
  } catch (const Error& e) {
    fail(item, e.parts().why, expected);
  }
  if (time <= 0 || time > kLongest) fail(item, fmt::format("the duration {} is out of range", text), expected);
  return time;
}

std::uint64_t parse_seed(std::string_view item, std::string_view text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) {
    fail(item, fmt::format("\"{}\" is not a whole number of 64 bits", text), "A seed is for example 7");
  }
  return seed;
}

wire::Opcode parse_opcode(std::string_view item, std::string_view text) {
  const auto found = std::ranges::find(kOpcodes, text, &NamedOpcode::word);
  if (found != kOpcodes.end()) return found->opcode;
  std::string names;
  for (const NamedOpcode& o : kOpcodes) names += fmt::format("{}{}", names.empty() ? "" : ", ", o.word);
  fail(item, fmt::format("\"{}\" is not an opcode", text), "Opcodes: " + names);
}

/// The packet of every service that has one of this name.
void select(wire::Opcode rc_opcode, std::bitset<256>& opcodes) {
  const auto set = [&](wire::Opcode opcode) { opcodes.set(static_cast<std::size_t>(opcode)); };
  const wire::OpcodeTraits& traits = wire::traits(rc_opcode);
  set(rc_opcode);
  if (traits.send || traits.write) set(wire::unreliable(rc_opcode));
  if (rc_opcode == wire::Opcode::kRcSendOnly) set(wire::Opcode::kUdSendOnly);
  if (rc_opcode == wire::Opcode::kRcSendOnlyImm) set(wire::Opcode::kUdSendOnlyImm);
}

/// Reads the items of one text into a config.
class Parser {
 public:
  FaultConfig parse(std::string_view text) {
    if (trim(text).empty()) fail(text, "there is no fault in it", fmt::format("Write for example {}", kExample));
    for (bool more = true; more;) {
      more = text.find(',') != std::string_view::npos;
      item(split_off(text, ','));
    }
    if (opcodes_.any()) config_.opcodes = opcodes_;
    return config_;
  }

 private:
  void item(std::string_view item) {
    std::string_view value = item;
    const std::string_view word = split_off(value, '=');
    if (item.find('=') == std::string_view::npos) {
      fail(item, "a fault is WORD=VALUE", fmt::format("Words: {}; for example {}", kWords, kExample));
    }
    value = trim(value);
    if (word != "opcode" && std::ranges::find(seen_, word) != seen_.end()) {
      fail(item, fmt::format("{} is given twice", word), "Leave one of them out");
    }
    seen_.push_back(word);
    assign(item, word, value);
  }

  void assign(std::string_view item, std::string_view word, std::string_view value) {
    if (const auto rate = std::ranges::find(kRates, word, &NamedRate::word); rate != kRates.end()) {
      config_.*(rate->rate) = parse_rate(item, value);
    } else if (word == "delay") {
      if (value.find(':') == std::string_view::npos) {
        fail(item, "a delay needs its rate and its duration", "Write for example delay=1%:200us");
      }
      config_.delay = parse_rate(item, split_off(value, ':'));
      config_.delay_time = parse_time(item, value);
    } else if (word == "late_dma") {
      config_.late_dma = parse_time(item, value);
    } else if (word == "gpu_write_late") {
      config_.gpu_write_late = parse_time(item, value);
    } else if (word == "seed") {
      config_.seed = parse_seed(item, value);
    } else if (word == "opcode") {
      select(parse_opcode(item, value), opcodes_);
    } else {
      fail(item, fmt::format("\"{}\" is not a fault", word), fmt::format("Words: {}", kWords));
    }
  }

  FaultConfig config_;
  std::bitset<256> opcodes_;
  std::vector<std::string_view> seen_;
};

std::string rate_text(std::uint32_t per_million) { return fmt::format("{}%", per_million / 1e4); }

}  // namespace

FaultConfig parse_faults(std::string_view text) { return Parser().parse(text); }

std::string to_string(const FaultConfig& config) {
  std::vector<std::string> items;
  for (const NamedRate& r : kRates) {
    if (config.*(r.rate) != 0) items.push_back(fmt::format("{}={}", r.word, rate_text(config.*(r.rate))));
  }
  if (config.delay != 0) {
    items.push_back(fmt::format("delay={}:{}", rate_text(config.delay), format_duration(config.delay_time)));
  }
  if (config.late_dma != 0) items.push_back(fmt::format("late_dma={}", format_duration(config.late_dma)));
  if (config.gpu_write_late != 0) {
    items.push_back(fmt::format("gpu_write_late={}", format_duration(config.gpu_write_late)));
  }
  items.push_back(fmt::format("seed={}", config.seed));
  if (!config.opcodes.all()) {
    for (const NamedOpcode& o : kOpcodes) {
      if (config.opcodes.test(static_cast<std::size_t>(o.opcode))) items.push_back(fmt::format("opcode={}", o.word));
    }
  }
  return fmt::format("{}", fmt::join(items, ","));
}

}  // namespace tensorwire::softhca
