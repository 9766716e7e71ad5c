#include "base/host_identity.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string>
#include <vector>

#include "base/env.hpp"
#include "base/error.hpp"
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

namespace {

std::uint64_t given_identity(const std::string& given, int rank) {
  std::vector<std::string> names;
  std::istringstream text{given};
  for (std::string name; std::getline(text, name, ',');) names.push_back(name);
  if (names.size() < 2) return identity_of(std::as_bytes(std::span(given)));
  if (static_cast<std::size_t>(rank) >= names.size()) {
    throw Error{fmt::format("read TENSORWIRE_HOSTID={}", given), fmt::format("it has no name for rank {}", rank),
                "Give one name, or one for each rank"};
  }
  return identity_of(std::as_bytes(std::span(names[static_cast<std::size_t>(rank)])));
}

}  // namespace

std::uint64_t host_identity(int rank) {
  const auto given = env::get("TENSORWIRE_HOSTID");
  return given ? given_identity(*given, rank) : host_identity();
}

}  // namespace tensorwire
