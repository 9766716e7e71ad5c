// A scenario: a fabric and its traffic, as a network engineer writes them down (scenarios/*.toml, docs/fabric.md).
// Plain values; reading is strict: what is not known, or cannot be, is refused with file, line, key and what is
// allowed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collective/types.hpp"
#include "fabric/fabric.hpp"
#include "fabric/link_failure.hpp"

namespace tensorwire::fabric {

/// A tensor-parallel group at decode: all-reduce, compute, all-reduce.
struct AllReduceTraffic {
  std::vector<HostId> hosts;
  std::uint64_t bytes = 256 * 1024;
  collective::Algorithm algorithm = collective::Algorithm::kTwoShot;
  std::uint32_t operations = 32;  ///< that are simulated and measured
  std::uint32_t warm_up = 0;      ///< before them
  std::uint32_t per_token = 160;
  Ps compute = 12 * kMillisecond;  ///< of a token, between its all-reduces
  Ps start = 0;
  std::uint8_t dscp = 26;
};

/// Each of `from` writes to each of `to`, or with `pairs` the first to the first, the second to the second, ...
struct BulkTraffic {
  std::vector<HostId> from, to;
  bool pairs = false;
  std::uint32_t message_bytes = 1U << 20;
  std::uint32_t messages = 0;  ///< of each; 0: without end
  std::uint32_t queue_pairs = 1;
  Ps start = 0;
  std::uint8_t dscp = 26;
};

/// A NIC that takes packets more slowly than its link brings them.
struct SlowReceiver {
  HostId host = 0;
  Ps receive_ps_per_byte = 0;
  std::uint64_t buffer_bytes = 256 * 1024;
  std::uint64_t xoff_bytes = 128 * 1024;
  std::uint64_t xon_bytes = 120 * 1024;
};

struct Scenario {
  std::string name;
  std::string about;
  Topology topology;
  FabricConfig fabric;
  transport::MtuCode mtu = transport::MtuCode::k4096;
  std::uint8_t timeout = 14;
  std::vector<AllReduceTraffic> allreduces;
  std::vector<BulkTraffic> bulk;
  std::vector<SlowReceiver> slow_receivers;
  std::vector<LinkFailureConfig> link_failures;
  Ps limit = 100 * kMillisecond;        ///< it ends when all that ends has ended, or here
  Ps sample_every = 10 * kMicrosecond;  ///< queues and pauses over time
};

/// A key set from outside: "switch.ecn.min", of lists of tables "bulk.0.message"; the value as in the file, where
/// quotes of a text may be left out.
struct Setting {
  std::string key, value;
};

/// @throws Error naming file, line, key and what is allowed.
[[nodiscard]] Scenario read_scenario(const std::string& file, const std::vector<Setting>& settings = {});
/// The same from text; `file` is what errors call it.
[[nodiscard]] Scenario parse_scenario(std::string_view text, const std::string& file,
                                      const std::vector<Setting>& settings = {});

}  // namespace tensorwire::fabric
