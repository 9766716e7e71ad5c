#include "chaos/work.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/error.hpp"
#include "base/random.hpp"

namespace tensorwire::chaos {

namespace {

constexpr std::size_t kMostElements = 600'000;  ///< of a buffer; beyond 1 MiB all-reduces go into windows
constexpr std::array<std::size_t, 8> kCounts{0, 1, 17, 1'000, 4'099, 20'000, 100'001, kMostElements};
constexpr std::array kTypes{twFloat32, twFloat16, twBfloat16, twInt32};

std::size_t bytes_of(twDataType_t dtype) noexcept { return dtype == twFloat16 || dtype == twBfloat16 ? 2 : 4; }

/// What rank `rank` puts at `index` into operation `number`: below 64.
std::uint32_t value(std::uint64_t seed, std::uint64_t number, std::size_t rank, std::size_t index) noexcept {
  const auto key = static_cast<std::uint32_t>(mix64(seed + 64 * number + rank));
  return ((static_cast<std::uint32_t>(index) * 2'654'435'761U) ^ key) >> 26;
}

/// A small integer as fp16: its highest bit is the one that is not stored.
std::uint16_t to_half(std::uint32_t number) noexcept {
  if (number == 0) return 0;
  const auto exponent = static_cast<std::uint32_t>(std::bit_width(number)) - 1;
  return static_cast<std::uint16_t>(((exponent + 15) << 10) | ((number << (10 - exponent)) & 0x3ff));
}

std::uint32_t bits_of(twDataType_t dtype, std::uint32_t number) noexcept {
  const auto as_float = std::bit_cast<std::uint32_t>(static_cast<float>(number));
  switch (dtype) {
    case twFloat16:
      return to_half(number);
    case twBfloat16:
      return as_float >> 16;
    case twFloat32:
      return as_float;
    default:
      return number;
  }
}

constexpr std::array kKinds{"all-reduce", "reduce-scatter", "all-gather", "broadcast",
                            "all-to-all", "barrier",        "messages",   "group"};

}  // namespace

Operation operation(std::uint64_t seed, std::uint64_t index, int ranks) {
  Random random{mix64(seed) + mix64(index + 1)};
  Operation op;
  op.kind = random.below(2) == 0 ? Kind::kAllReduce : static_cast<Kind>(random.below(kKinds.size()));
  op.count = kCounts[random.below(random.below(4) == 0 ? kCounts.size() : 6)];  // large ones are few
  op.dtype = kTypes[random.below(kTypes.size())];
  op.op = random.below(4) == 0 ? twMax : twSum;
  op.root = static_cast<int>(random.below(static_cast<std::uint32_t>(ranks)));
  op.in_place = random.below(3) == 0 && op.kind < Kind::kMessages;
  if (op.kind != Kind::kAllReduce && op.kind != Kind::kBroadcast) op.count /= static_cast<std::size_t>(ranks);
  return op;
}

std::string to_string(const Operation& op) {
  return fmt::format("{} of {} (type {}, operator {}, root {}{})", kKinds[static_cast<std::size_t>(op.kind)], op.count,
                     static_cast<int>(op.dtype), static_cast<int>(op.op), op.root, op.in_place ? ", in place" : "");
}

Work::Work() : memory_(kMostElements * sizeof(float)) {}

void Work::begin(twComm_t comm, int ranks, int rank, std::uint64_t seed) noexcept {
  comm_ = comm;
  ranks_ = ranks;
  rank_ = rank;
  seed_ = seed;
  done_ = 0;
}

Work::Layout Work::layout(const Operation& op) const noexcept {
  const auto all = static_cast<std::size_t>(ranks_);
  switch (op.kind) {
    case Kind::kReduceScatter:
      return {all, 1};
    case Kind::kAllGather:
      return {1, all};
    case Kind::kAllToAll:
      return {all, all};
    case Kind::kBarrier:
      return {0, 0};
    case Kind::kGroup:
      return {1, 2};
    case Kind::kAllReduce:
    case Kind::kBroadcast:
    case Kind::kMessages:
      break;
  }
  return {1, 1};
}

std::byte* Work::output_of(const Operation& op) const noexcept {
  if (!op.in_place) return memory_.out().data();
  const std::size_t block = op.count * bytes_of(op.dtype) * static_cast<std::size_t>(rank_);
  return memory_.in().data() + (op.kind == Kind::kReduceScatter ? block : 0);
}

std::byte* Work::input_of(const Operation& op) const noexcept {
  const std::size_t block = op.count * bytes_of(op.dtype) * static_cast<std::size_t>(rank_);
  return memory_.in().data() + (op.in_place && op.kind == Kind::kAllGather ? block : 0);
}

void Work::fill(const Operation& op) const noexcept {
  const std::size_t size = bytes_of(op.dtype);
  const std::size_t elements = op.count * layout(op).in_blocks;
  std::byte* const to = input_of(op);
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint32_t bits = bits_of(op.dtype, value(seed_, done_, static_cast<std::size_t>(rank_), i));
    std::memcpy(to + i * size, &bits, size);
  }
}

twResult_t Work::call(const Operation& op) const noexcept {
  const void* const in = input_of(op);
  void* const out = output_of(op);
  switch (op.kind) {
    case Kind::kAllReduce:
      return twAllReduce(in, out, op.count, op.dtype, op.op, comm_, nullptr);
    case Kind::kReduceScatter:
      return twReduceScatter(in, out, op.count, op.dtype, op.op, comm_, nullptr);
    case Kind::kAllGather:
      return twAllGather(in, out, op.count, op.dtype, comm_, nullptr);
    case Kind::kBroadcast:
      return twBroadcast(in, out, op.count, op.dtype, op.root, comm_, nullptr);
    case Kind::kAllToAll:
      return twAllToAll(in, out, op.count, op.dtype, comm_, nullptr);
    case Kind::kBarrier:
      return twBarrier(comm_, nullptr);
    case Kind::kMessages:
    case Kind::kGroup:
      return call_group(op);
  }
  return twInternalError;
}

twResult_t Work::call_group(const Operation& op) const noexcept {
  const bool reduces = op.kind == Kind::kGroup;
  std::byte* const out = output_of(op);
  std::byte* const received = out + (reduces ? op.count * bytes_of(op.dtype) : 0);
  twResult_t result = twGroupStart();
  const auto add = [&](auto function, auto... arguments) {
    if (result == twSuccess) result = function(arguments..., comm_, nullptr);
  };
  add(twSend, input_of(op), op.count, op.dtype, (rank_ + 1) % ranks_);
  if (reduces) add(twAllReduce, input_of(op), out, op.count, op.dtype, op.op);
  add(twRecv, received, op.count, op.dtype, rank_before());
  const twResult_t end = twGroupEnd();
  return result == twSuccess ? end : result;
}

/// The number that belongs at `index` of block `block` of the output.
std::uint32_t Work::expected(const Operation& op, std::size_t block, std::size_t index) const noexcept {
  const auto from = [&](std::size_t rank, std::size_t at) { return value(seed_, done_, rank, at); };
  const auto self = static_cast<std::size_t>(rank_);
  switch (op.kind) {
    case Kind::kBroadcast:
      return from(static_cast<std::size_t>(op.root), index);
    case Kind::kAllGather:
      return from(block, index);
    case Kind::kAllToAll:
      return from(block, self * op.count + index);
    case Kind::kBarrier:
      return 0;
    case Kind::kMessages:
      return from(static_cast<std::size_t>(rank_before()), index);
    case Kind::kGroup:
      if (block == 1) return from(static_cast<std::size_t>(rank_before()), index);
      break;
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
      break;
  }
  const std::size_t at = op.kind == Kind::kReduceScatter ? self * op.count + index : index;
  std::uint32_t result = 0;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks_); ++rank) {
    result = op.op == twMax ? std::max(result, from(rank, at)) : result + from(rank, at);
  }
  return result;
}

void Work::check(const Operation& op) const {
  const std::size_t size = bytes_of(op.dtype);
  const std::byte* at = output_of(op);
  for (std::size_t block = 0; block < layout(op).out_blocks; ++block) {
    for (std::size_t i = 0; i < op.count; ++i, at += size) {
      const std::uint32_t wanted = bits_of(op.dtype, expected(op, block, i));
      std::uint32_t got = 0;
      std::memcpy(&got, at, size);
      if (got == wanted) continue;
      throw Error{fmt::format("operation {}, {}", done_, to_string(op)),
                  fmt::format("wrong result: element {} of block {} is {:#x} instead of {:#x}", i, block, got, wanted)};
    }
  }
}

twResult_t Work::next() {
  const Operation op = operation(seed_, done_, ranks_);
  fill(op);
  const twResult_t result = call(op);
  if (result == twSuccess) {
    check(op);
    // The buffers are the caller's again.
    std::memset(memory_.in().data(), 0xee, std::min(memory_.in().size(), std::size_t{4096}));
    std::memset(output_of(op), 0xdd, std::min(op.count * bytes_of(op.dtype), std::size_t{4096}));
    ++done_;
  }
  check_canaries();
  return result;
}

twResult_t Work::disagree() {
  Operation op = operation(seed_, done_, ranks_);
  switch (mix64(seed_) % 3) {
    case 0:
      op.count = op.count >= 8 ? op.count - 8 : op.count + 8;
      break;
    case 1:
      op.dtype = op.dtype == twFloat32 ? twInt32 : twFloat32;
      break;
    default:
      op.op = op.op == twSum ? twMax : twSum;
      break;
  }
  // A sum and a maximum, or a type, mean nothing to what only copies or comes without an element.
  if (op.kind != Kind::kAllReduce && op.kind != Kind::kReduceScatter) op.kind = Kind::kAllReduce;
  return call(op);
}

void Work::check_canaries() const {
  if (const std::string dead = memory_.dead_canary(); !dead.empty()) {
    throw Error{fmt::format("operation {}, {}", done_, to_string(operation(seed_, done_, ranks_))), dead};
  }
}

}  // namespace tensorwire::chaos
