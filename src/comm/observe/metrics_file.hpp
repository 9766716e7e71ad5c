// Writes a text again and again into one file, for Prometheus' node exporter (textfile collector) and the like: at an
// interval by a thread of its own, and whenever it is told to.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/time.hpp"

namespace tensorwire::comm {

class MetricsFile {
 public:
  /// @param text is called by the thread too. @param interval 0: only write_now() writes.
  MetricsFile(std::string path, Ps interval, std::function<std::string()> text);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  /// Any thread. That it cannot be written is said once.
  void write_now() noexcept;

 private:
  void run(Ps interval);

  std::string path_;
  std::function<std::string()> text_;
  std::mutex mutex_;  ///< of stopping_
  std::condition_variable wake_;
  bool stopping_ = false;
  std::mutex writing_;  ///< one writer at a time; guards said_
  bool said_ = false;
  std::thread thread_;
};

}  // namespace tensorwire::comm
