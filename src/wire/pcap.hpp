// Classic pcap files (nanosecond magic a1b23c4d, LINKTYPE_ETHERNET): a writer that never loses a packet that it was
// given, and a reader that trusts no length. Format: draft-ietf-opsawg-pcap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "wire/frame.hpp"

namespace tensorwire::wire {

/// Appends RoCEv2 datagrams, framed as Ethernet, to a file. Not thread-safe: its owner locks.
class PcapWriter {
 public:
  /// Creates or truncates `path`. @throws Error naming the path.
  explicit PcapWriter(const std::string& path);

  /// One datagram: `udp_payload` ends with its ICRC. `time` is picoseconds since the Unix epoch.
  void write(const FrameInfo& info, std::span<const std::byte> udp_payload, Ps time);

  /// A GSO super-packet: datagrams of `segment_bytes` each, the last maybe shorter; segment i gets IP identification
  /// first_id + i.
  void write_segments(const FrameInfo& info, std::span<const std::byte> payload, std::size_t segment_bytes, Ps time);

  void flush();

 private:
  struct Close {
    void operator()(std::FILE* f) const noexcept { std::fclose(f); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

struct PcapRecord {
  Ps time = 0;  ///< picoseconds since the Unix epoch
  std::vector<std::byte> bytes;
};

/// Reads a whole capture (classic pcap, either byte order, micro- or nanoseconds, LINKTYPE_ETHERNET).
/// @throws Error naming path, offset and cause.
[[nodiscard]] std::vector<PcapRecord> read_pcap(const std::string& path);

}  // namespace tensorwire::wire
