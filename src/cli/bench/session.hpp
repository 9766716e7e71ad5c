// What every benchmark of the communicator shares: its flags, the ranks (started here, or the launcher's), the group
// and the options of the communicators that are compared.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/group.hpp"
#include "cli/bench/paths.hpp"
#include "cli/command.hpp"
#include "collective/types.hpp"
#include "comm/communicator.hpp"

namespace tensorwire::cli {

struct SessionFlags {
  int ranks = 0;  ///< 0: as many as there are cores, at least 2
  std::string device;
  int gid_index = -1;
  std::string dtype = "fp16";
  std::string algorithm = "auto";
  std::vector<std::string> paths;
  double timeout_s = 0;  ///< 0: the bootstrap's default
  bootstrap::GroupFlags group;
  std::string pcap;
  std::string json;

  void add_to(Command& command);
};

/// A rank of a running benchmark.
struct Session {
  std::unique_ptr<bootstrap::Group> group;
  comm::CommOptions comm;
  collective::DType dtype = collective::DType::kFloat16;
  std::vector<std::string> paths;
  std::vector<std::string> notes;  ///< what the reader of the report must know
};

/// Everybody's values, by rank. Collective.
template <class T>
std::vector<std::vector<T>> gather(bootstrap::Group& group, const std::vector<T>& mine) {
  std::vector<std::vector<T>> all;
  for (const auto& bytes : group.all_gather(std::as_bytes(std::span{mine}))) {
    auto& theirs = all.emplace_back(bytes.size() / sizeof(T));
    if (!theirs.empty()) std::memcpy(theirs.data(), bytes.data(), theirs.size() * sizeof(T));
  }
  return all;
}

/// Starts the ranks, or, in a process that is one already, joins the group and runs `body`. Flags are checked before
/// anything is started.
/// @return the exit status. @throws Error.
int run_session(const SessionFlags& flags, const std::function<int(Session&)>& body);

}  // namespace tensorwire::cli
