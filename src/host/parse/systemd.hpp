// What systemd's files say, as far as limits of memory go.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tensorwire::host {

/// The value of the last line "LimitMEMLOCK=..." (its soft limit): "infinity", "64K", "65536:infinity". An empty one
/// takes back what was said before, and is told as such.
[[nodiscard]] std::optional<std::string_view> limit_memlock_in(std::string_view unit_file);

/// Bytes; infinity is UINT64_MAX. Nothing where systemd would not understand it.
[[nodiscard]] std::optional<std::uint64_t> bytes_of_limit(std::string_view value);

/// The service that /proc/PID/cgroup names: "slurmd.service"; empty where it is none.
[[nodiscard]] std::string service_in(std::string_view cgroup);

}  // namespace tensorwire::host
