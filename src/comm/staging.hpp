// Memory in place of a user's tensor that cannot be registered with the HCA: the CPU copies to and from it, which is
// said once. Owns that memory, which grows to the largest tensor staged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/mapped_memory.hpp"
#include "comm/link.hpp"

namespace tensorwire::comm {

class Staging {
 public:
  /// A copy of the input. @param why it could not be registered. @throws Error when there is no memory.
  [[nodiscard]] const std::byte* take_input(Link& link, const std::byte* input, std::size_t bytes,
                                            const std::string& why);
  /// Of one of several inputs that are needed at once, with room for `total` bytes: to `offset` of it.
  [[nodiscard]] const std::byte* take_input(Link& link, const std::byte* input, std::size_t bytes, std::size_t offset,
                                            std::size_t total, const std::string& why);
  /// Room for the output, or for several that are needed at once. @throws Error when there is no memory.
  [[nodiscard]] std::byte* output(Link& link, std::size_t bytes, const std::string& why);
  /// Copies what came at `offset` of it to where it belongs.
  void give_output(std::byte* to, std::size_t offset, std::size_t bytes) noexcept;

  /// Bytes copied by the CPU.
  [[nodiscard]] std::uint64_t copied() const noexcept { return copied_; }

 private:
  std::byte* room(Link& link, std::optional<MappedMemory>& memory, std::size_t bytes, const std::string& why);

  std::optional<MappedMemory> input_, output_;
  std::uint64_t copied_ = 0;
  bool said_ = false;
};

}  // namespace tensorwire::comm
