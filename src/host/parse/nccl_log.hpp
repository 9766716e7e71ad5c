// Reads an NCCL debug log.
#pragma once

#include <string>
#include <string_view>

#include "host/facts/nccl_log.hpp"

namespace tensorwire::host {

/// Of each kind of line the first 32 are kept, and the first 16,384 of channels. Text that is no log gives an empty
/// one.
[[nodiscard]] NcclLog parse_nccl_log(std::string_view text, std::string path);

}  // namespace tensorwire::host
