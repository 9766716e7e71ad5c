// Which operation: what a rank was asked to do, as it stands in flight records and traces.
#pragma once

#include <cstdint>
#include <string>

#include "base/time.hpp"
#include "collective/plan.hpp"

namespace tensorwire::comm {

struct OperationInfo {
  std::uint64_t number = 0;  ///< in the communicator, from 0
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  collective::Collective collective = collective::Collective::kAllReduce;
  collective::Algorithm algorithm = collective::Algorithm::kOneShot;
  collective::DType dtype = collective::DType::kFloat32;
  collective::Op op = collective::Op::kSum;
};

[[nodiscard]] OperationInfo info_of(std::uint64_t number, const collective::Shape& shape,
                                    collective::Algorithm algorithm) noexcept;
/// "all-reduce 17 (two-shot, 131072 x fp16)"
[[nodiscard]] std::string to_string(const OperationInfo& info);
/// Its fields as the inside of a JSON object: "operation":17,"collective":"all-reduce",...
[[nodiscard]] std::string json_fields(const OperationInfo& info);
/// More of them, where it waited; begins with a comma.
[[nodiscard]] std::string waited_fields(Ps waited, std::uint32_t waited_for);
/// "12.345"
[[nodiscard]] std::string microseconds(Ps time);

}  // namespace tensorwire::comm
