// Making and opening recordings. What leaves a host in one is what the readers asked for, less what is nobody else's
// business: other variables and mapped files of the process, serial numbers, and, if wanted, addresses.
#pragma once

#include <memory>
#include <string>

#include "host/tree/recording.hpp"

namespace tensorwire::host {

/// Takes out variables that are not of a communication library, files that are not RDMA libraries, serial numbers and
/// GUIDs.
void remove_private(Recording& recording);

/// Writes the recording into `folder`, which is made if need be. @return the path of the file.
std::string save(const Recording& recording, const std::string& folder);

/// A folder with a recording or a copy of a host's files, or the file of a recording. @throws Error.
[[nodiscard]] std::unique_ptr<Tree> open_recorded(const std::string& path);

}  // namespace tensorwire::host
