// A barrier of the processes on one host in a file they all map, so that ranks which prepared their inputs begin each
// operation together whatever library they measure. Owns its mapping; the driver owns the file, which begins as zeros.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tensorwire::versus {

class StartLine {
 public:
  /// @throws std::exception
  StartLine(const std::string& file, std::uint32_t ranks);
  ~StartLine();
  StartLine(const StartLine&) = delete;
  StartLine& operator=(const StartLine&) = delete;

  /// Returns when all ranks have called it; yields while it waits. @throws std::exception when they did not within a
  /// minute.
  void wait();

 private:
  struct Shared {
    std::atomic<std::uint32_t> arrived;
    alignas(64) std::atomic<std::uint32_t> round;
  };

  Shared* shared_;
  std::uint32_t ranks_;
};

}  // namespace tensorwire::versus
