// One way to do an all-reduce between GPUs, as one rank sees it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuda/communicator.hpp"

namespace tensorwire::bench {

class Way {
 public:
  Way() = default;
  virtual ~Way() = default;
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;

  /// bf16 sum, out of place; may be captured. False: it cannot do that, or failed.
  [[nodiscard]] virtual bool all_reduce(const void* in, void* out, std::size_t count, cudaStream_t stream) = 0;
  /// What went wrong, or what was used: one line.
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Memory that this way likes best; freed with the way.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
};

struct Place {
  int rank;
  int ranks;
  int device;
  cuda::Exchange exchange;
};

/// "tensorwire": as it chooses; "lines:LANES:THREADS", "words:LANES:THREADS", "slots:LANES:PIECE":
/// in that shape; "add-norm": with the residual and RMSNorm, rows of 8192.
[[nodiscard]] std::unique_ptr<Way> make_tensorwire_way(const std::string& name, const Place& place,
                                                       std::shared_ptr<cuda::Communicator> communicator);
[[nodiscard]] std::shared_ptr<cuda::Communicator> make_communicator(const Place& place,
                                                                    const cuda::CommunicatorOptions& wishes);

/// "nccl": NCCL's defaults; "nccl-window": symmetric memory windows. @throws Error where libnccl.so.2 is not found: it
/// is looked for in `library`, or, when that is empty, where the loader looks.
[[nodiscard]] std::unique_ptr<Way> make_nccl_way(bool window, const Place& place, const std::string& library);

}  // namespace tensorwire::bench
