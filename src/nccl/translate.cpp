#include "nccl/translate.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace tensorwire::nccl {

namespace {

struct TypeRow {
  const char* name;
  std::size_t bytes;
  std::optional<twDataType_t> reduced;
};

/// By DataType.
constexpr std::array kTypes{
    TypeRow{"ncclInt8", 1, std::nullopt},       TypeRow{"ncclUint8", 1, std::nullopt},
    TypeRow{"ncclInt32", 4, twInt32},           TypeRow{"ncclUint32", 4, std::nullopt},
    TypeRow{"ncclInt64", 8, std::nullopt},      TypeRow{"ncclUint64", 8, std::nullopt},
    TypeRow{"ncclFloat16", 2, twFloat16},       TypeRow{"ncclFloat32", 4, twFloat32},
    TypeRow{"ncclFloat64", 8, std::nullopt},    TypeRow{"ncclBfloat16", 2, twBfloat16},
    TypeRow{"ncclFloat8e4m3", 1, std::nullopt}, TypeRow{"ncclFloat8e5m2", 1, std::nullopt},
};
static_assert(kTypes.size() == kFloat8e5m2 + 1);
constexpr TypeRow kNoType{"an unknown type", 0, std::nullopt};

const TypeRow& row_of(DataType dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype);
  return index < kTypes.size() ? kTypes[index] : kNoType;
}

bool is_multiple(std::size_t unit, std::size_t bytes, std::initializer_list<const void*> buffers) noexcept {
  return bytes % unit == 0 && std::ranges::all_of(buffers, [&](const void* buffer) {
           return reinterpret_cast<std::uintptr_t>(buffer) % unit == 0;
         });
}

}  // namespace

const char* name_of(DataType dtype) noexcept { return row_of(dtype).name; }
std::size_t size_of(DataType dtype) noexcept { return row_of(dtype).bytes; }
std::optional<twDataType_t> reduced(DataType dtype) noexcept { return row_of(dtype).reduced; }

const char* name_of(RedOp op) noexcept {
  constexpr std::array kNames{"ncclSum", "ncclProd", "ncclMax", "ncclMin", "ncclAvg"};
  const auto index = static_cast<std::size_t>(op);
  return index < kNames.size() ? kNames[index] : "an operator of the program's own";
}

std::optional<twRedOp_t> reduced_by(RedOp op) noexcept {
  switch (op) {
    case kSum:
      return twSum;
    case kMax:
      return twMax;
    case kAvg:
      return twAvg;
    case kProd:
    case kMin:
      break;
  }
  return std::nullopt;
}

std::optional<Moved> moved(std::size_t count, DataType dtype, std::initializer_list<const void*> buffers) noexcept {
  const std::size_t unit = size_of(dtype);
  if (unit == 0 || count > SIZE_MAX / unit) return std::nullopt;
  const std::size_t bytes = count * unit;
  if (is_multiple(4, bytes, buffers)) return Moved{twInt32, bytes / 4};
  if (is_multiple(2, bytes, buffers)) return Moved{twFloat16, bytes / 2};
  return std::nullopt;
}

Result result_of(twResult_t result) noexcept {
  switch (result) {
    case twTimeout:
      return kSystemError;
    case twDisagreement:
      return kInvalidUsage;
    case twAborted:
      return kRemoteError;
    default:
      return static_cast<Result>(result);  // up to 7 they are the same
  }
}

}  // namespace tensorwire::nccl
