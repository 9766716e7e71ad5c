#include "comm/observe/operation_info.hpp"

#include <fmt/format.h>

namespace tensorwire::comm {

OperationInfo info_of(std::uint64_t number, const collective::Shape& shape, collective::Algorithm algorithm) noexcept {
  return {number, shape.count, shape.bytes(), shape.collective, algorithm, shape.dtype, shape.op};
}

std::string to_string(const OperationInfo& info) {
  return fmt::format("{} {} ({}, {} x {})", name_of(info.collective), info.number, name_of(info.algorithm), info.count,
                     name_of(info.dtype));
}

std::string json_fields(const OperationInfo& info) {
  return fmt::format(
      R"("operation":{},"collective":"{}","algorithm":"{}","count":{},"dtype":"{}","op":"{}","bytes":{})", info.number,
      name_of(info.collective), name_of(info.algorithm), info.count, name_of(info.dtype), name_of(info.op), info.bytes);
}

std::string waited_fields(Ps waited, std::uint32_t waited_for) {
  if (waited <= 0) return {};
  return fmt::format(R"(,"waited_us":{},"waited_for":{})", microseconds(waited), waited_for);
}

std::string microseconds(Ps time) {
  return fmt::format("{:.3f}", static_cast<double>(time) / static_cast<double>(kMicrosecond));
}

}  // namespace tensorwire::comm
