// What a communicator counts, as plain values: what it did, how long that took by size, whom it waited for, what its
// device had to send again. Times are picoseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "collective/runner.hpp"
#include "comm/link.hpp"

namespace tensorwire::comm {

/// Size classes are powers of two: class 0 is up to 64 bytes, each next one twice that, the last one all the rest.
inline constexpr std::uint64_t kSmallestSizeClass = 64;
inline constexpr std::size_t kSizeClasses = 32;
[[nodiscard]] std::size_t size_class(std::uint64_t bytes) noexcept;

/// The operations of one collective and one size class that ended well.
struct SizeStats {
  collective::Collective collective = collective::Collective::kAllReduce;
  std::uint64_t up_to_bytes = 0;  ///< the largest operation of the class
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;
  Ps p50 = 0, p99 = 0;  ///< within 3.2 % (latency_histogram.hpp)
  Ps max = 0, total = 0;
};

struct PeerReport {
  int rank = 0;
  std::string path;  ///< as Link::describe
  PeerStats traffic;
  Ps waited = 0;  ///< time that operations waited with this peer as the last to come
};

/// Events of the device since the communicator was made, under the names that mlx5 uses. Other communicators on the
/// device count as well. Those that a device does not have are left out.
struct DeviceCount {
  std::string name;
  std::uint64_t count = 0;
};

struct CommStats {
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;  ///< of user tensors reduced
  collective::RunnerCounters runner;
  std::vector<SizeStats> sizes;
  std::vector<PeerReport> peers;
  std::vector<DeviceCount> device;
  /// Packets that the device sent again or, where it does not count them (hardware), the events that made it send
  /// again: acknowledge timeouts, NAKs for a sequence error, answers that were left out.
  std::uint64_t retransmissions = 0;
};

}  // namespace tensorwire::comm
