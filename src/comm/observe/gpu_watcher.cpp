#include "comm/observe/gpu_watcher.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

#include "base/log.hpp"

namespace tensorwire::comm {

namespace {

/// A journal holds 1024 operations, of some microseconds each.
constexpr std::chrono::milliseconds kLooksEvery{2};

}  // namespace

GpuWatcher::GpuWatcher(GpuSource source, std::size_t operations, std::function<void(const FailureNote&)> failed)
    : source_(std::move(source)), failed_(std::move(failed)), log_(operations), thread_([this] { watch(); }) {}

GpuLog GpuWatcher::read() {
  const std::scoped_lock lock{mutex_};
  if (!gone_) look();
  return log_;
}

void GpuWatcher::stop() noexcept {
  {
    const std::scoped_lock lock{waking_};
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  try {
    const std::scoped_lock lock{mutex_};
    if (!gone_) look();
    gone_ = true;
  } catch (const std::exception& error) {
    log_warn(fmt::format("what ran last on the GPU is not known: {}", error.what()));
  }
}

void GpuWatcher::watch() noexcept {
  bool told = false;
  std::unique_lock waking{waking_};
  while (!wake_.wait_for(waking, kLooksEvery, [this] { return stopping_; })) {
    waking.unlock();
    try {
      {
        const std::scoped_lock lock{mutex_};
        look();
      }
      if (const auto failure = told ? std::nullopt : source_.failure()) {
        told = true;
        failed_(*failure);
      }
    } catch (const std::exception& error) {
      log_warn(fmt::format("the GPU's operations are not recorded any more: {}", error.what()));
      return;
    }
    waking.lock();
  }
}

void GpuWatcher::look() { log_.add(source_.journal()); }

}  // namespace tensorwire::comm
