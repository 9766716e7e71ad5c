// The capture of a process: every RoCEv2 packet that its Hcas send and receive, in one pcap file (TENSORWIRE_PCAP; "%p"
// in the name becomes the process id). Super-packets are split, so the file looks as a wire would. Shared by all Hcas
// of the process; its lock is its own.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "wire/pcap.hpp"

namespace tensorwire::softhca {

class Capture {
 public:
  /// The process's capture, opened at the first call; null when none is asked for. @throws Error naming the file.
  [[nodiscard]] static std::shared_ptr<Capture> from_environment();

  /// @throws Error naming the file.
  explicit Capture(const std::string& path);

  /// One send or one received buffer: packets of `segment_bytes`, the last maybe shorter.
  void record(const wire::FrameInfo& info, std::span<const std::byte> packets, std::size_t segment_bytes) noexcept;
  /// Pushes what was recorded to the file; also done when the last Hca closes.
  void flush() noexcept;

 private:
  std::mutex mutex_;
  wire::PcapWriter writer_;
  bool failed_ = false;  ///< said once; the traffic goes on
};

}  // namespace tensorwire::softhca
