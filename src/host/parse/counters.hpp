// Lists of counters and of variables.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "host/facts/rdma.hpp"

namespace tensorwire::host {

/// `ethtool -S X`: "     rx_prio3_pause: 17"; lines that are not like that are left out.
[[nodiscard]] Counters parse_ethtool_statistics(std::string_view text);

/// The NUL-separated variables of /proc/PID/environ.
[[nodiscard]] std::map<std::string, std::string, std::less<>> parse_environment(std::string_view text);

/// The lines NAME=value of nccl.conf and ucx.conf; # begins a comment, [ a section.
[[nodiscard]] std::map<std::string, std::string, std::less<>> parse_nccl_conf(std::string_view text);

}  // namespace tensorwire::host
