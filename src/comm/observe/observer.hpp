// All that watches a communicator: statistics always; trace, metrics file and flight record as the environment asks.
// The communicator tells it what happens; it owns what is counted, recorded and written.
//
// What ran on a GPU is asked of it by a thread of its own, where it is to be written.
// On the data path it stores numbers in memory it has, without a lock. Files are written when the communicator fails or
// goes, when the process exits, and (metrics) by a thread of their own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/observe/device_counters.hpp"
#include "comm/observe/flight_record.hpp"
#include "comm/observe/gpu_watcher.hpp"
#include "comm/observe/metrics_file.hpp"
#include "comm/observe/metrics_text.hpp"
#include "comm/observe/operation_statistics.hpp"
#include "comm/observe/trace_recorder.hpp"

namespace tensorwire::comm {

class Observer {
 public:
  /// Reads TENSORWIRE_TRACE, TENSORWIRE_TRACE_EVENTS, TENSORWIRE_METRICS, TENSORWIRE_METRICS_INTERVAL and
  /// TENSORWIRE_FLIGHT_RECORD. The link outlives it. @throws Error for a value that cannot be read.
  Observer(const Identity& who, const Link& link);
  /// Writes what is to be written.
  ~Observer();
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  // The thread that runs operations.
  /// @return its ordinal, for end().
  std::uint64_t begin(const OperationInfo& info, Ps now) noexcept;
  /// It ended well. @param idle_since when polls began to find nothing, 0 if they never did; @param last_peer the one
  /// whose message came last.
  void end(std::uint64_t ordinal, Ps now, Ps idle_since, std::uint32_t last_peer) noexcept;
  /// The operation under way has waited so long for this peer that somebody should know.
  void straggles(int peer) noexcept { straggler_.store(peer, std::memory_order_relaxed); }
  /// The communicator failed, for good.
  void failed(const FailureNote& note) noexcept;
  /// From now on operations run on a GPU as well, which is asked about them where there is a trace or a flight record
  /// to be written. Until leave_gpu().
  void watch_gpu(GpuSource source);
  void leave_gpu() noexcept;
  /// Null when nothing is traced.
  [[nodiscard]] TraceRecorder* trace() noexcept { return trace_ ? &*trace_ : nullptr; }

  // Any thread.
  [[nodiscard]] std::vector<SizeStats> sizes() const { return statistics_.read(); }
  [[nodiscard]] std::vector<DeviceCount> device() const { return device_.read(); }
  [[nodiscard]] Ps waited_for(std::uint32_t peer) const noexcept { return static_cast<Ps>(waited_[peer].get()); }

  /// The process exits, with the communicator as it is: writes trace and metrics. From the exit handler.
  void process_exits() noexcept;

 private:
  [[nodiscard]] MetricsSnapshot snapshot() const;
  void write_trace() noexcept;
  void write_record(const FailureNote& note, Ps now);
  /// By the thread that watches the GPU.
  void gpu_failed(const FailureNote& note) noexcept;
  /// The last operations of host and GPU, of the first failure.
  void write_flight(const FailureNote& note, Ps now);

  Identity who_;
  const Link* link_;
  OperationStatistics statistics_;
  DeviceCounters device_;
  FlightRecord record_;
  std::vector<Tally> waited_;  ///< by peer
  std::atomic<Ps> running_since_ = 0;
  std::atomic<int> straggler_ = -1;
  std::atomic<bool> failed_ = false;
  std::optional<std::string> record_folder_;
  std::string trace_path_;
  std::optional<TraceRecorder> trace_;
  std::atomic<bool> record_written_ = false;
  std::size_t gpu_operations_kept_ = FlightRecord::kOperations;
  std::unique_ptr<GpuWatcher> gpu_;
  std::vector<std::string> paths_;      ///< to each peer, as they were at the start
  std::optional<MetricsFile> metrics_;  ///< last: its thread reads all the others
};

}  // namespace tensorwire::comm
