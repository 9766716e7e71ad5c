// The C API in rank processes: the id travels through the group that run_ranks gives, everything else is the library's.
#pragma once

#include <cstring>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "rank_processes.hpp"
#include "tensorwire/tensorwire.h"

namespace tensorwire::comm {

/// Throws where the call did not give what was expected.
inline void expect(twResult_t got, twResult_t wanted, const char* call, twComm_t comm = nullptr) {
  if (got == wanted) return;
  throw Error{call, std::string{twGetErrorString(got)} + " instead of " + twGetErrorString(wanted) + ": " +
                        twGetLastError(comm)};
}
inline void expect_success(twResult_t got, const char* call, twComm_t comm = nullptr) {
  expect(got, twSuccess, call, comm);
}

/// An id that rank 0 made, on every rank.
inline twUniqueId shared_id(bootstrap::Group& group) {
  twUniqueId id{};
  if (group.rank() == 0) expect_success(twGetUniqueId(&id), "twGetUniqueId");
  const auto bytes = group.broadcast(std::as_bytes(std::span{id.internal}));
  std::memcpy(id.internal, bytes.data(), sizeof id.internal);
  return id;
}

inline twConfig_t soft_config() {
  twConfig_t config TW_CONFIG_INITIALIZER;
  config.device = "soft";
  return config;
}

inline twComm_t init_rank(bootstrap::Group& group, const twConfig_t& config = soft_config()) {
  twComm_t comm = nullptr;
  const twResult_t result = twCommInitRankConfig(&comm, group.world_size(), shared_id(group), group.rank(), &config);
  expect_success(result, "twCommInitRankConfig");
  return comm;
}

/// Every rank's exit code and text are as asked.
inline std::string problems(const std::vector<RankResult>& results) {
  std::string text;
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    if (results[rank].exit_code != 0) text += "rank " + std::to_string(rank) + ": " + results[rank].text + "\n";
  }
  return text;
}

}  // namespace tensorwire::comm
