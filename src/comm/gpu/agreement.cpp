#include "comm/gpu/agreement.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/env.hpp"
#include "base/error.hpp"

namespace tensorwire::comm {

namespace {

constexpr std::byte kNoCuda{0};

GpuPath asked_for() {
  const std::string asked =
      env::get_choice("TENSORWIRE_PATH", "auto", {"auto", "peer", "shared", "hierarchical", "proxy", "host"});
  if (asked == "host") return GpuPath::kHost;
  if (asked == "proxy") return GpuPath::kProxy;
  if (asked == "hierarchical") return GpuPath::kHierarchical;
  if (asked == "shared") return GpuPath::kShared;
  return asked == "peer" ? GpuPath::kPeer : GpuPath::kAuto;
}

}  // namespace

GpuPath agree_on_path(bootstrap::Group& group, bool has_cuda) {
  const std::array<std::byte, 1> mine{has_cuda ? static_cast<std::byte>(asked_for()) : kNoCuda};
  auto agreed = GpuPath::kAuto;
  const auto all = group.all_gather(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (has_cuda && (all[rank].size() != 1 || all[rank][0] == kNoCuda)) {
      throw Error{"join the GPUs", group.name(static_cast<int>(rank)) + " has a libtensorwire without CUDA",
                  "Build it where nvcc is, on all hosts"};
    }
    if (has_cuda) agreed = std::max(agreed, static_cast<GpuPath>(all[rank][0]));
  }
  return agreed;
}

}  // namespace tensorwire::comm
