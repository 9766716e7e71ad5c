#include "plan.hpp"

#include <algorithm>
#include <cstring>

#include "base/random.hpp"

namespace tensorwire::rxe {

namespace {

constexpr std::uint32_t kInlineBytes = 32;
constexpr std::uint32_t kMaxPieces = 3;

/// Every third length lies at an edge: of a packet, of the padding to 4 bytes, of the range. The others are spread
/// evenly over the powers of two.
std::uint32_t pick_length(Random& random, std::uint32_t mtu) {
  if (random.below(3) == 0) {
    const auto edges = std::to_array<std::uint32_t>(
        {0, 1, 2, 3, 4, 5, 7, mtu - 1, mtu, mtu + 1, 2 * mtu - 1, 2 * mtu, 2 * mtu + 3, kMaxLength - 1, kMaxLength});
    return edges[random.below(edges.size())];
  }
  const std::uint32_t bits = random.below(20);
  return (1U << bits) + random.below(1U << bits);
}

Kind pick_kind(Random& random, std::uint32_t kinds) {
  for (;;) {
    const std::uint32_t kind = random.below(kKindNames.size());
    if ((kinds >> kind & 1) != 0) return static_cast<Kind>(kind);
  }
}

}  // namespace

Operation operation(const Settings& settings, std::uint32_t index) {
  Random random{mix64(settings.seed) + index};
  Operation result;
  result.kind = pick_kind(random, settings.kinds);
  const bool atomic = result.kind == Kind::kFetchAdd || result.kind == Kind::kCompareSwap;
  result.length = atomic ? 8 : pick_length(random, settings.path_mtu);
  result.inline_data = result.length <= kInlineBytes && has_arrival(result.kind) && random.below(2) == 0;
  result.pieces = static_cast<std::uint8_t>(atomic ? 1 : 1 + random.below(kMaxPieces));
  result.from = random.below(kPatternBytes - kMaxLength);
  result.reply_from = random.below(kPatternBytes - kMaxLength);
  result.to = kMargin + (atomic ? 0 : random.below(kShifts));
  result.immediate = static_cast<std::uint32_t>(random.next());
  result.word = random.below(kWords);
  result.operand = random.next();
  result.compare = random.next();
  return result;
}

std::vector<std::byte> pattern(std::uint64_t seed) {
  Random random{mix64(~seed)};
  std::vector<std::byte> bytes(kPatternBytes);
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random.next();
    std::memcpy(&bytes[at], &word, sizeof word);
  }
  return bytes;
}

std::uint64_t AtomicModel::apply(Operation& operation) noexcept {
  std::uint64_t& word = words_[operation.word];
  const std::uint64_t before = word;
  if (operation.kind == Kind::kFetchAdd) {
    word += operation.operand;
  } else {
    if (operation.compare % 2 == 0) operation.compare = before;
    if (operation.compare == before) word = operation.operand;
  }
  return before;
}

}  // namespace tensorwire::rxe
