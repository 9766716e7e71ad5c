// The ways that a benchmark sends one all-reduce: the communicator over verbs (same-host link, RoCEv2 packets, a NIC),
// the same plan over kernel TCP, and the floors beneath both. One interface, so that the loop that times them cannot
// favour one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/group.hpp"
#include "cli/bench/exchange.hpp"
#include "collective/types.hpp"
#include "comm/communicator.hpp"

namespace tensorwire::cli {

class BenchPath {
 public:
  virtual ~BenchPath() = default;

  /// One all-reduce of this rank; false: the sample does not count (a floor lost a packet). @throws Error when the path
  /// is broken.
  virtual bool all_reduce(const std::byte* in, std::byte* out) = 0;
  /// Packets sent and sent again by this rank so far; nothing where the path cannot know.
  [[nodiscard]] virtual std::optional<std::uint64_t> packets() const { return std::nullopt; }
  [[nodiscard]] virtual std::optional<std::uint64_t> retransmissions() const { return std::nullopt; }
  /// How the bytes travel, in one line.
  [[nodiscard]] virtual std::string description() const = 0;
  /// Whether all_reduce() really reduces; floors only move bytes.
  [[nodiscard]] virtual bool reduces() const noexcept { return true; }
  [[nodiscard]] virtual std::string algorithm() const { return {}; }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 protected:
  explicit BenchPath(std::string name) : name_(std::move(name)) {}

 private:
  std::string name_;
};

/// What one all-reduce is.
struct PathShape {
  std::size_t count = 0;
  collective::DType dtype = collective::DType::kFloat16;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return count * collective::element_bytes(dtype); }
};

/// How paths are made; `comm` carries device, GID, algorithm thresholds, wait policy, and the planted fault.
struct PathOptions {
  PathShape shape;
  comm::CommOptions comm;
};

/// "mapped" (ranks of one host), "local", "roce" (and "rdma" on a NIC), "tcp", "udp-floor", "tcp-bare". Collective over
/// `group`. @throws Error, unknown names included.
[[nodiscard]] std::unique_ptr<BenchPath> make_path(const std::string& name, bootstrap::Group& group,
                                                   const PathOptions& options);

/// The paths that a run takes when none are named.
[[nodiscard]] std::vector<std::string> default_paths();

}  // namespace tensorwire::cli
