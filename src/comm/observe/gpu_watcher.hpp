// Reads what a communicator's GPU writes down before it is overwritten, and hears of its failures while graphs replay
// and no code of this library runs in the application's threads. Owns the thread that does so, and the log.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/observe/flight_record.hpp"
#include "comm/observe/gpu_log.hpp"

namespace tensorwire::comm {

/// What is asked of the GPU side of a communicator, by any thread.
struct GpuSource {
  std::function<cuda::Communicator::Journal()> journal;
  std::function<std::optional<FailureNote>()> failure;
};

class GpuWatcher {
 public:
  /// @param operations that are kept. @param failed is called once, by the thread; it may call read()
  GpuWatcher(GpuSource source, std::size_t operations, std::function<void(const FailureNote&)> failed);
  ~GpuWatcher() { stop(); }
  GpuWatcher(const GpuWatcher&) = delete;
  GpuWatcher& operator=(const GpuWatcher&) = delete;

  /// The log, after a last look at the GPU while there is one.
  [[nodiscard]] GpuLog read();
  /// After a last look, the GPU is asked no more. Any thread but the watcher's own.
  void stop() noexcept;

 private:
  void watch() noexcept;
  void look();

  GpuSource source_;
  std::function<void(const FailureNote&)> failed_;
  std::mutex mutex_;  ///< guards what follows, and the source while it is asked for the journal
  GpuLog log_;
  bool gone_ = false;  ///< the source is not asked any more
  std::mutex waking_;  ///< of stopping_
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;  ///< last: it uses all the others
};

}  // namespace tensorwire::comm
