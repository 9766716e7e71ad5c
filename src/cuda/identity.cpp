#include "cuda/identity.hpp"

#include <fmt/format.h>

#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/env.hpp"
#include "base/error.hpp"
#include "base/host_identity.hpp"
#include "cuda/driver.cuh"

namespace tensorwire::cuda {

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
  return given ? given_identity(*given, rank) : tensorwire::host_identity();
}

std::uint64_t gpu_identity(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), fmt::format("look at GPU {}", device));
  return identity_of(std::as_bytes(std::span(properties.uuid.bytes)));
}

}  // namespace tensorwire::cuda
