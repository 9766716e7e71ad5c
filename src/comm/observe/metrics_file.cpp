#include "comm/observe/metrics_file.hpp"

#include <chrono>
#include <csignal>
#include <exception>
#include <utility>

#include "base/atomic_file.hpp"
#include "base/log.hpp"

namespace tensorwire::comm {

MetricsFile::MetricsFile(std::string path, Ps interval, std::function<std::string()> text)
    : path_(std::move(path)), text_(std::move(text)) {
  write_now();
  if (interval <= 0) return;
  // Signals are the application's: none of them is handled on this thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread{[this, interval] { run(interval); }};
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

MetricsFile::~MetricsFile() {
  {
    const std::scoped_lock lock{mutex_};
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void MetricsFile::run(Ps interval) {
  std::unique_lock lock{mutex_};
  const auto pause = std::chrono::nanoseconds{interval / kNanosecond};
  while (!wake_.wait_for(lock, pause, [&] { return stopping_; })) {
    lock.unlock();
    write_now();
    lock.lock();
  }
}

void MetricsFile::write_now() noexcept {
  const std::scoped_lock lock{writing_};
  try {
    replace_file(path_, text_());
    said_ = false;
  } catch (const std::exception& error) {
    if (!std::exchange(said_, true)) log_warn(std::string{"the metrics are not written: "} + error.what());
  }
}

}  // namespace tensorwire::comm
