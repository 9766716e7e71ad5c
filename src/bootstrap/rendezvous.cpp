#include "bootstrap/rendezvous.hpp"

#include <unistd.h>

#include <array>

#include "bootstrap/messages.hpp"

namespace tensorwire::bootstrap {

std::string own_host_name() {
  std::array<char, kMaxHostName + 1> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown-host";
  return clean_text(name.data(), kMaxHostName);
}

std::uint64_t job_hash(const std::string& job) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a: equal everywhere, unlike std::hash
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace tensorwire::bootstrap
