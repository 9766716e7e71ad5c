// Opening with explicit choices: for tests, which want several Hcas in one process at known addresses.
#pragma once

#include <memory>

#include "softhca/hca_impl.hpp"

namespace tensorwire::softhca {

/// A new Hca of `device` at exactly `ipv4`, not shared with other callers.
/// @throws Error: the address is owned, or port 4791 is taken.
[[nodiscard]] std::shared_ptr<Hca> open_at(const DeviceInfo& device, std::uint32_t ipv4, HcaOptions options);

}  // namespace tensorwire::softhca
