// `tensorwire soft -- COMMAND...`: runs a verbs program that knows nothing of Tensorwire on the user-space HCA, by
// putting the folder of the drop-in libibverbs.so.1 in front of the loader's search path, showing the devices in sysfs
// and telling NCCL about them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tensorwire::cli {

/// The folder of the drop-in: of TENSORWIRE_SOFT_LIBRARY, else ../lib/tensorwire seen from this program.
/// @throws Error that names the place where it is missing.
[[nodiscard]] std::string soft_library_folder();

/// A search path as LD_LIBRARY_PATH has it, beginning with `folder` and not naming it twice.
[[nodiscard]] std::string prepend_to_path(std::string_view folder, std::string_view path);

struct SoftOptions {
  bool sysfs = true;  ///< show the devices in /sys/class/infiniband, where that is allowed
};

/// Becomes `command`, looked up in PATH: its exit status is this program's. Comes back only by throwing.
/// @throws Error: nothing to run, no drop-in, or why the program cannot be started.
[[noreturn]] void run_on_soft_hca(const std::vector<std::string>& command, SoftOptions options);

}  // namespace tensorwire::cli
