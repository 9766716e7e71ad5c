// Classic pcap files (nanosecond magic a1b23c4d, LINKTYPE_ETHERNET): a writer that never loses a packet in silence, and
// a reader that trusts no length. Format: draft-ietf-opsawg-pcap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.hpp"
#include "wire/frame.hpp"

namespace tensorwire::wire {

/// Appends RoCEv2 datagrams, framed as Ethernet, to a file. Not thread-safe: its owner locks. write() never throws: the
/// first failure (a full disk) is logged once and kept, and nothing is appended after it.
class PcapWriter {
 public:
  /// Creates or truncates `path`. Times given to write() count from `epoch_ns`, nanoseconds since the Unix epoch (an
  /// absolute time does not fit picoseconds). @throws Error naming the path.
  explicit PcapWriter(const std::string& path, std::int64_t epoch_ns = 0);

  /// One datagram: `udp_payload`, at most kMaxUdpPayloadBytes, ends with its ICRC. `time` is picoseconds since the
  /// writer's epoch.
  void write(const FrameInfo& info, std::span<const std::byte> udp_payload, Ps time) noexcept;
  /// A frame of any kind, from its Ethernet header on, without FCS.
  void write_frame(std::span<const std::byte> frame, Ps time) noexcept;

  /// A GSO super-packet: datagrams of `segment_bytes` each, the last maybe shorter; segment i gets IP identification
  /// info.ip_id + i.
  void write_segments(const FrameInfo& info, std::span<const std::byte> payload, std::size_t segment_bytes,
                      Ps time) noexcept;

  /// Hands everything to the operating system. @throws Error when a packet could not be written, now or before.
  void flush();

 private:
  void append_record_header(std::size_t frame_bytes, Ps time) noexcept;
  void append(const void* bytes, std::size_t size) noexcept;

  struct Close {
    void operator()(std::FILE* f) const noexcept { std::fclose(f); }
  };
  std::string path_;
  std::int64_t epoch_ns_;
  int failure_ = 0;  ///< errno of the first write that failed
  std::unique_ptr<std::FILE, Close> file_;
};

struct PcapRecord {
  std::int64_t time_ns = 0;          ///< nanoseconds since the Unix epoch
  std::uint32_t original_bytes = 0;  ///< length on the wire; more than bytes.size() where the capture cut the packet
  std::vector<std::byte> bytes;
};

/// Parses a whole capture (classic pcap, either byte order, micro- or nanoseconds, LINKTYPE_ETHERNET). `name` stands in
/// errors. @throws Error naming name, offset and cause.
[[nodiscard]] std::vector<PcapRecord> parse_pcap(std::span<const std::byte> file, std::string_view name);

/// parse_pcap() of a file. @throws Error also when it cannot be read.
[[nodiscard]] std::vector<PcapRecord> read_pcap(const std::string& path);

}  // namespace tensorwire::wire
