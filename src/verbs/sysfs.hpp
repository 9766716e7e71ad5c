// What the kernel says about an RDMA device under /sys/class/infiniband: for facts that the verbs API does not give.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tensorwire::verbs {

/// The text of "gid_attrs/types/3" and the like of a port, without the newline; nullopt when it cannot be read (the
/// kernel answers EINVAL for an empty GID index).
[[nodiscard]] std::optional<std::string> read_port_attribute(std::string_view device, unsigned port,
                                                             std::string_view attribute);

/// A number from hw_counters or counters of a port.
[[nodiscard]] std::optional<std::uint64_t> read_port_counter(std::string_view device, unsigned port,
                                                             std::string_view name);

}  // namespace tensorwire::verbs
