#include "base/units.hpp"

#include <array>
#include <limits>
#include <span>

#include "base/error.hpp"

namespace tensorwire {

namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr std::uint64_t kKibi = 1024;
constexpr auto kSizeUnits = std::to_array<Unit>({{"", 1},
                                                 {"B", 1},
                                                 {"KiB", kKibi},
                                                 {"MiB", kKibi* kKibi},
                                                 {"GiB", kKibi* kKibi* kKibi},
                                                 {"TiB", kKibi* kKibi* kKibi* kKibi},
                                                 {"K", kKibi},
                                                 {"M", kKibi* kKibi},
                                                 {"G", kKibi* kKibi* kKibi},
                                                 {"T", kKibi* kKibi* kKibi* kKibi},
                                                 {"kB", 1'000},
                                                 {"MB", 1'000'000},
                                                 {"GB", 1'000'000'000},
                                                 {"TB", 1'000'000'000'000}});

constexpr auto kTimeUnits = std::to_array<Unit>({{"ps", 1},
                                                 {"ns", kNanosecond},
                                                 {"us", kMicrosecond},
                                                 {"ms", kMillisecond},
                                                 {"s", kSecond},
                                                 {"min", 60 * kSecond}});

/// What is being read, for the error line.
struct Kind {
  std::string_view noun;
  std::span<const Unit> units;
  std::string_view remedy;
};

constexpr Kind kSize{"size", kSizeUnits, "Write a number and a unit: 4096, 256KiB, 1.5MiB, 64kB"};
constexpr Kind kDuration{"duration", kTimeUnits, "Write a number and one of ps, ns, us, ms, s, min: 75us, 1.5ms, 2s"};

Error unreadable(const Kind& kind, std::string_view text, std::string why) {
  return Error{"read " + std::string{kind.noun} + " \"" + std::string{text} + "\"", std::move(why),
               std::string{kind.remedy}};
}

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// value * 10 + digit; false when that does not fit.
bool append_digit(std::uint64_t& value, char digit) noexcept {
  return !__builtin_mul_overflow(value, std::uint64_t{10}, &value) &&
         !__builtin_add_overflow(value, static_cast<std::uint64_t>(digit - '0'), &value);
}

/// A decimal number as digits / 10^decimals.
struct Decimal {
  std::uint64_t digits = 0;
  std::uint64_t divisor = 1;
  std::string_view rest;  ///< what follows the number
};

Decimal read_decimal(const Kind& kind, std::string_view text) {
  Decimal number;
  std::size_t at = 0;
  std::size_t digits_seen = 0;
  bool in_fraction = false;
  for (; at < text.size(); ++at) {
    if (text[at] == '.' && !in_fraction && digits_seen > 0) {
      in_fraction = true;
      continue;
    }
    if (!is_digit(text[at])) break;
    ++digits_seen;
    const bool fits = append_digit(number.digits, text[at]) &&
                      (!in_fraction || !__builtin_mul_overflow(number.divisor, std::uint64_t{10}, &number.divisor));
    if (!fits) throw unreadable(kind, text, "the number is too large");
  }
  if (digits_seen == 0) throw unreadable(kind, text, "it does not begin with a number");
  if (text[at - 1] == '.') throw unreadable(kind, text, "no digit follows the point");
  number.rest = text.substr(at);
  return number;
}

const Unit& find_unit(const Kind& kind, std::string_view text, std::string_view name) {
  for (const Unit& unit : kind.units) {
    if (unit.name == name) return unit;
  }
  if (name.empty()) throw unreadable(kind, text, "the unit is missing");
  throw unreadable(kind, text, "unknown unit \"" + std::string{name} + "\"");
}

std::uint64_t read_quantity(const Kind& kind, std::string_view text) {
  const Decimal number = read_decimal(kind, text);
  std::string_view name = number.rest;
  if (name.starts_with(' ')) name.remove_prefix(1);
  const Unit& unit = find_unit(kind, text, name);
  // digits * factor / divisor, without leaving 64 bits where the result fits: what divides the factor is taken out
  // first.
  std::uint64_t divisor = number.divisor;
  std::uint64_t factor = unit.factor;
  std::uint64_t digits = number.digits;
  for (const std::uint64_t prime : {2U, 5U}) {
    while (divisor % prime == 0) {
      if (factor % prime == 0) {
        factor /= prime;
      } else if (digits % prime == 0) {
        digits /= prime;
      } else {
        throw unreadable(kind, text, "not a whole number of " + std::string{&kind == &kSize ? "bytes" : "picoseconds"});
      }
      divisor /= prime;
    }
  }
  std::uint64_t value = 0;
  if (__builtin_mul_overflow(digits, factor, &value)) throw unreadable(kind, text, "the number is too large");
  return value;
}

}  // namespace

std::uint64_t parse_bytes(std::string_view text) { return read_quantity(kSize, text); }

Ps parse_duration(std::string_view text) {
  if (text == "0") return 0;
  const std::uint64_t value = read_quantity(kDuration, text);
  if (value > static_cast<std::uint64_t>(std::numeric_limits<Ps>::max())) {
    throw unreadable(kDuration, text, "longer than 106 days");
  }
  return static_cast<Ps>(value);
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes != 0 && bytes % kKibi == 0 && unit + 1 < kNames.size(); ++unit) bytes /= kKibi;
  return std::to_string(bytes) + std::string{kNames[unit]};
}

std::string format_duration(Ps duration) {
  if (duration == kNever) return "never";
  if (duration == 0) return "0";
  const bool negative = duration < 0;
  const std::uint64_t magnitude =
      negative ? std::uint64_t{0} - static_cast<std::uint64_t>(duration) : static_cast<std::uint64_t>(duration);
  // Seconds are the largest unit printed, and the first unit that is not above the duration is taken.
  const Unit* unit = &kTimeUnits[0];
  for (const Unit& candidate : std::span{kTimeUnits}.first(5)) {
    if (magnitude >= candidate.factor) unit = &candidate;
  }
  std::uint64_t whole = magnitude / unit->factor;
  std::uint64_t thousandths = 0;
  if (unit->factor > 1) {
    const std::uint64_t step = unit->factor / 1'000;
    thousandths = (magnitude % unit->factor + step / 2) / step;
    whole += thousandths / 1'000;
    thousandths %= 1'000;
  }
  std::string text = (negative ? "-" : "") + std::to_string(whole);
  if (thousandths != 0) {
    std::string decimals = std::to_string(1'000 + thousandths).substr(1);
    decimals.erase(decimals.find_last_not_of('0') + 1);
    text += "." + decimals;
  }
  return text + std::string{unit->name};
}

}  // namespace tensorwire
