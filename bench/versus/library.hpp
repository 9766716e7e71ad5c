// What is compared: one all-reduce of fp32 sums by some library, between processes that the driver (run.py) started.
// Each program of this folder is a Library and a main() that calls run_rank(): the loop that times them, their inputs
// and the check of their results are the same code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tensorwire::versus {

class Library {
 public:
  virtual ~Library() = default;

  [[nodiscard]] virtual std::uint32_t rank() const = 0;
  [[nodiscard]] virtual std::uint32_t ranks() const = 0;
  /// What it is and over what it runs, in one line.
  [[nodiscard]] virtual std::string description() const = 0;
  /// The path that an all-reduce of so many elements takes, where the library can tell.
  [[nodiscard]] virtual std::string path(std::size_t /*count*/) const { return {}; }

  /// These buffers are what the following all-reduces use. Not timed.
  virtual void prepare(const float* /*in*/, float* /*out*/, std::size_t /*count*/) {}
  /// @throws std::exception
  virtual void all_reduce(const float* in, float* out, std::size_t count) = 0;
  /// They are about to be freed.
  virtual void forget(const float* /*in*/, float* /*out*/, std::size_t /*count*/) {}

  /// Its own counters since the start, by name.
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::uint64_t>> counters() const { return {}; }
};

/// Serves the driver until it says that this is the end. @return the exit status. @throws std::exception
int run_rank(Library& library);

}  // namespace tensorwire::versus
