#include "base/host_identity.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/random.hpp"
#include "base/unique_fd.hpp"

namespace tensorwire {

std::uint64_t identity_of(std::span<const std::byte> bytes) noexcept {
  std::uint64_t hash = bytes.size();
  for (const std::byte byte : bytes) hash = mix64(hash ^ std::to_integer<std::uint64_t>(byte)) + 1;
  return std::max<std::uint64_t>(hash, 1);
}

std::uint64_t host_identity() noexcept {
  std::array<char, 128> text{};
  const UniqueFd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  const ssize_t boot = fd ? ::read(fd.get(), text.data(), 64) : 0;
  const auto used = static_cast<std::size_t>(std::max<ssize_t>(boot, 0));
  const ssize_t space = ::readlink("/proc/self/ns/net", text.data() + used, text.size() - used);
  return identity_of(
      std::as_bytes(std::span(text)).first(used + static_cast<std::size_t>(std::max<ssize_t>(space, 0))));
}

}  // namespace tensorwire
