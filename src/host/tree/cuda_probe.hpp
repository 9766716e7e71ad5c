// What CUDA says of GPUs without starting work on one: attributes, which need no context. The library is loaded in a
// process of its own, which may crash or hang without harm, and is given less time than the doctor has.
#pragma once

#include <string>

#include "host/tree/tree.hpp"

namespace tensorwire::host {

/// "0000:3e:00.0 1": a line for each GPU with its attribute DMA_BUF_SUPPORTED. ELIBACC: there is no libcuda.so.1;
/// ETIMEDOUT: the driver takes longer to begin with, as where nothing keeps it loaded; ENODEV: CUDA finds no GPU.
[[nodiscard]] Answer cuda_dmabuf_answers(const std::string& subject);

}  // namespace tensorwire::host
