// This process as one of several hosts: where TW_GPU_TEST_HOSTS is set, the ranks of a test are spread over as many
// processes as a launcher started (RANK, WORLD_SIZE, MASTER_ADDR), each of which runs the same tests in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "bootstrap/group.hpp"
#include "cuda/communicator.hpp"

namespace tensorwire::test {

class HostProcess {
 public:
  /// Null: all ranks are in this process.
  [[nodiscard]] static HostProcess* get();

  [[nodiscard]] int host() const { return group_->rank(); }
  [[nodiscard]] int hosts() const { return group_->world_size(); }
  void barrier() { group_->barrier(); }
  [[nodiscard]] std::vector<cuda::Bytes> exchange(std::span<const std::byte> mine) { return group_->all_gather(mine); }

  /// Bytes that left this network namespace by interfaces other than loopback.
  [[nodiscard]] static std::uint64_t bytes_sent();

 private:
  HostProcess();

  std::unique_ptr<bootstrap::Group> group_;
};

}  // namespace tensorwire::test
