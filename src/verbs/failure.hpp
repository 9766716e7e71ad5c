// One line for a failed RDMA operation: what, status, both ends, likely cause, what to do.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "verbs/gid.hpp"

namespace tensorwire::verbs {

/// Who the two ends of a queue pair are.
struct Endpoints {
  Gid local_gid;
  std::uint32_t local_qpn = 0;
  Gid remote_gid;
  std::uint32_t remote_qpn = 0;
  int peer_rank = -1;     ///< -1: unknown
  std::string peer_host;  ///< may be empty
  std::uint8_t dscp = 26;
};

/// The parts of the line for a completion with an error status. `operation` says what was under way: "RDMA WRITE of
/// 131072 bytes (all-reduce 17, step 2)".
[[nodiscard]] ErrorParts explain_completion(const ibv_wc& completion, const std::string& operation,
                                            const Endpoints& ends);

/// The parts of the line for a post that returned `errno_value`.
[[nodiscard]] ErrorParts explain_post(int errno_value, const std::string& operation, const Endpoints& ends);

/// "transport retry counter exceeded (RETRY_EXC_ERR)".
[[nodiscard]] std::string status_text(ibv_wc_status status);

}  // namespace tensorwire::verbs
