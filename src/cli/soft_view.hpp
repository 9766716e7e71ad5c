// A view of /sys in which the user-space HCA's devices are InfiniBand devices, for this process and all that it starts:
// a mount namespace of its own, with a small file system over /sys/class/infiniband. What the kernel has there stays
// visible.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/soft_sysfs.hpp"

namespace tensorwire::cli {

/// Enters the namespace and mounts the view; who is not root does so in a user namespace in which only they exist. It
/// is tried in a child first: either all is as described, or nothing has changed.
/// @return why there is none, or nothing when there is.
[[nodiscard]] std::optional<std::string> show_in_sysfs(const std::vector<SysfsEntry>& entries);

}  // namespace tensorwire::cli
