// Whose memory an address is: the host's or a GPU's. Knows CUDA's driver only where the process has loaded it already,
// so it needs no CUDA to build and starts none; on a machine without a GPU it costs some 30 ns.
#pragma once

#include <optional>

namespace tensorwire::comm {

/// The number of the GPU (as this process counts) whose memory lies at `address`; nothing: host memory. Any thread.
[[nodiscard]] std::optional<int> gpu_of(const void* address) noexcept;

}  // namespace tensorwire::comm
