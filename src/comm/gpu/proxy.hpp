// A proxy of a GPU: a thread that does on the host what kernels ring for on one rail (cuda/relay.hpp), over a
// communicator of its own. It spins while work is in flight, and for a while after; then it looks every kNaps. It
// makes no CUDA call.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/gpu/hop_timeline.hpp"
#include "cuda/relay.hpp"

namespace tensorwire::comm {

/// The processors that a proxy may run on, of those that this process may: TENSORWIRE_PROXY_CPUS ("2-5,8"), else those
/// of the GPU's NUMA node. Empty: any. @throws Error, where the variable names none that it may use
[[nodiscard]] std::vector<int> proxy_cpus(const std::string& pci_address);

class Proxy {
 public:
  /// After its last work; then it naps.
  static constexpr Ps kSpins = 10 * kMillisecond;
  static constexpr Ps kNaps = 50 * kMicrosecond;

  /// @param who for traces @param cpus empty: any
  Proxy(cuda::Relay& relay, std::uint32_t rail, Communicator& communicator, Identity who, std::vector<int> cpus);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  // From any thread.
  /// What is under way ends here and on the other ranks.
  void abort(const std::string& reason) noexcept;
  /// Why it carries nothing any more.
  [[nodiscard]] std::optional<CommError> failure() const;
  [[nodiscard]] std::uint64_t operations() const noexcept { return operations_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  /// To its peers, and by the CPU, which has nothing to copy where the HCA reaches the windows.
  [[nodiscard]] std::uint64_t bytes_written() const noexcept { return written_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t bytes_copied() const noexcept { return copied_.load(std::memory_order_relaxed); }
  /// One line for people: where the time of the last rounds went.
  [[nodiscard]] std::string describe() const;

 private:
  /// The last rounds, from old to new, with what the GPU wrote down.
  [[nodiscard]] std::vector<Hops> rounds() const;
  /// As TENSORWIRE_TRACE asks.
  void write_timeline() const;
  void serve() noexcept;
  /// False: it failed.
  bool carry(const cuda::Round& round) noexcept;
  void end_with(const CommError& error) noexcept;

  cuda::Relay& relay_;
  const std::uint32_t rail_;
  Communicator& communicator_;
  const Identity who_;
  std::vector<int> cpus_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> operations_{0};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> written_{0};
  std::atomic<std::uint64_t> copied_{0};
  mutable std::mutex mutex_;  ///< guards what follows
  std::optional<CommError> failure_;
  std::vector<Hops> traces_;  ///< a ring, by number; of the GPU's moments there are none yet
  std::thread thread_;        ///< last: it uses all the others
};

}  // namespace tensorwire::comm
