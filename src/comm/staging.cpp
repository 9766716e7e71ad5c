#include "comm/staging.hpp"

#include <fmt/format.h>

#include <cstring>

#include "base/log.hpp"

namespace tensorwire::comm {

const std::byte* Staging::take_input(Link& link, const std::byte* input, std::size_t bytes, const std::string& why) {
  return take_input(link, input, bytes, 0, bytes, why);
}

const std::byte* Staging::take_input(Link& link, const std::byte* input, std::size_t bytes, std::size_t offset,
                                     std::size_t total, const std::string& why) {
  std::byte* to = room(link, input_, total, why) + offset;
  std::memcpy(to, input, bytes);
  copied_ += bytes;
  return to;
}

std::byte* Staging::output(Link& link, std::size_t bytes, const std::string& why) {
  return room(link, output_, bytes, why);
}

void Staging::give_output(std::byte* to, std::size_t offset, std::size_t bytes) noexcept {
  std::memcpy(to, output_->bytes().data() + offset, bytes);
  copied_ += bytes;
}

std::byte* Staging::room(Link& link, std::optional<MappedMemory>& memory, std::size_t bytes, const std::string& why) {
  if (!said_) log_warn(fmt::format("tensors are copied to memory that the HCA can reach, and back: {}", why));
  said_ = true;
  if (memory && memory->bytes().size() >= bytes) return memory->bytes().data();
  if (memory) link.forget(memory->bytes().data(), memory->bytes().size());
  memory.reset();
  memory.emplace(bytes, "memory for staging tensors", "Use smaller tensors, or memory that can be registered");
  return memory->bytes().data();
}

}  // namespace tensorwire::comm
