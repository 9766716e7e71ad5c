// What libibverbs shows a program on this host, which is not always what the kernel has: a library that is missing or
// too old, a node that cannot be opened, a provider that does not fit. The library is loaded in a process of its own,
// which may crash or hang without harm.
#pragma once

#include <string>

#include "host/tree/tree.hpp"

namespace tensorwire::host {

/// In the format of `ibv_devinfo -v`, less what no rule asks for. ELIBACC: there is no libibverbs.
[[nodiscard]] Answer verbs_devices(const std::string& subject);

/// "mlx5_0 EBADF": a line for each device with what registering a DMA-BUF that does not exist ends with. A driver that
/// can register one says EBADF, others EOPNOTSUPP or EPROTONOSUPPORT (NCCL asks the same).
[[nodiscard]] Answer dmabuf_answers(const std::string& subject);

}  // namespace tensorwire::host
