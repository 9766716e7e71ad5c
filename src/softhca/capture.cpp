#include "softhca/capture.hpp"

#include <unistd.h>

#include <ctime>
#include <exception>

#include "base/clock.hpp"
#include "base/env.hpp"
#include "base/log.hpp"

namespace tensorwire::softhca {

namespace {

std::string expand_process_id(std::string path) {
  for (std::size_t at = path.find("%p"); at != std::string::npos; at = path.find("%p")) {
    path.replace(at, 2, std::to_string(::getpid()));
  }
  return path;
}

/// What the wall clock read when monotonic_now() was zero, nanoseconds since the Unix epoch. Picoseconds hold 106 days,
/// so packets carry monotonic time and the writer adds this.
std::int64_t unix_epoch_of_monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec - monotonic_now() / kNanosecond;
}

}  // namespace

Capture::Capture(const std::string& path) : writer_(path, unix_epoch_of_monotonic_ns()) {}

std::shared_ptr<Capture> Capture::from_environment() {
  // One file per process however often Hcas come and go: a second PcapWriter would truncate what the first one wrote.
  static std::mutex mutex;
  static std::shared_ptr<Capture> capture;
  const std::lock_guard lock{mutex};
  const auto path = env::get("TENSORWIRE_PCAP");
  if (!path) return nullptr;
  if (!capture) capture = std::make_shared<Capture>(expand_process_id(*path));
  return capture;
}

void Capture::record(const wire::FrameInfo& info, std::span<const std::byte> packets,
                     std::size_t segment_bytes) noexcept {
  const std::lock_guard lock{mutex_};
  writer_.write_segments(info, packets, segment_bytes, monotonic_now());
}

void Capture::flush() noexcept {
  const std::lock_guard lock{mutex_};
  if (failed_) return;
  try {
    writer_.flush();
  } catch (const std::exception& error) {
    failed_ = true;
    log_error(std::string{"the capture is incomplete: "} + error.what());
  }
}

}  // namespace tensorwire::softhca
