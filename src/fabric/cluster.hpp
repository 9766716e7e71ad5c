// A cluster as a planner describes it, as a scenario: so many GPUs with a NIC each, tensor-parallel groups at decode
// that all run at once, a fabric of a usual shape. Plain values.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "fabric/scenario.hpp"

namespace tensorwire::fabric {

enum class ClusterShape : std::uint8_t { kSingleSwitch, kLeafSpine, kRailOptimised, kFatTree };
inline constexpr std::array kClusterShapes{ClusterShape::kSingleSwitch, ClusterShape::kLeafSpine,
                                           ClusterShape::kRailOptimised, ClusterShape::kFatTree};
[[nodiscard]] std::string_view name_of(ClusterShape shape) noexcept;

struct Cluster {
  std::uint32_t gpus = 8;
  std::uint32_t tensor_parallel = 8;
  std::uint64_t bytes = 256 * 1024;  ///< of an all-reduce
  std::uint32_t per_token = 160;
  Ps compute = 12 * kMillisecond;  ///< of a token
  collective::Algorithm algorithm = collective::Algorithm::kTwoShot;
  ClusterShape shape = ClusterShape::kLeafSpine;
  Ps ps_per_byte = 20;
  std::uint32_t hosts_per_leaf = 32;   ///< leaf-spine; of a rail: nodes
  std::uint32_t oversubscription = 1;  ///< so many times more bandwidth to hosts than to spines
  bool spread = true;                  ///< a group's ranks are as far apart as they can be; else side by side
  std::uint64_t buffer_bytes = 64ULL << 20;
  transport::MtuCode mtu = transport::MtuCode::k4096;
  // Alpha, the latency of a message beside its bytes' time, is 2 us by these at 400 Gb/s and one switch: 2 x pcie, 2 x
  // hop, and a packet's time on the second link.
  Ps pcie = 500 * kNanosecond;
  Ps hop = 458 * kNanosecond;  ///< a cable and the switch behind it
  Ps host_loop = 0;            ///< software: from a completion until its answer is posted
  Ps post_cost = 0;            ///< of a work request
  std::uint32_t operations = 4;
};

/// @throws Error where GPUs, groups and shape do not fit each other.
[[nodiscard]] Scenario scenario_of(const Cluster& cluster);

}  // namespace tensorwire::fabric
