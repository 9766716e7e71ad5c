// What programs that load libnccl.so.2 pass and get: the types of NCCL's C interface that its public header documents,
// written anew. Enumerations travel as int.
#pragma once

#include <cstddef>

#include "tensorwire/tensorwire.h"

namespace tensorwire::nccl {

/// The interface that the functions here have: 2.27.3, the first with windows.
inline constexpr int kInterfaceVersion = 22703;

enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8e4m3 = 10,
  kFloat8e5m2 = 11,
};

enum RedOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

using Comm = twComm_t;
using Window = twWindow_t;
struct UniqueId {
  char internal[128];
};
static_assert(sizeof(UniqueId) == sizeof(twUniqueId));

}  // namespace tensorwire::nccl
