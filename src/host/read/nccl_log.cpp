#include "host/parse/nccl_log.hpp"

#include "base/error.hpp"
#include "host/read/read.hpp"
#include "host/tree/folder_tree.hpp"

namespace tensorwire::host {

namespace {

constexpr std::size_t kLongestLog = std::size_t{256} << 20;

}  // namespace

NcclLog read_nccl_log(const std::string& path) {
  const Answer log = read_file(path, kLongestLog);
  if (!log.ok()) throw system_error("read NCCL log " + path, log.error);
  return parse_nccl_log(log.text, path);
}

}  // namespace tensorwire::host
