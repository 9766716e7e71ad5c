#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "wire/pcap.hpp"
#include "wire/pcap_format.hpp"

namespace tensorwire::wire {

namespace {

std::array<std::byte, pcap::kFileHeaderBytes> file_header() noexcept {
  std::array<std::byte, pcap::kFileHeaderBytes> header{};
  std::byte* p = header.data();
  store_be32(p, pcap::kMagicNanoseconds);
  store_be16(p + pcap::kVersionOffset, pcap::kVersionMajor);
  store_be16(p + pcap::kVersionOffset + 2, pcap::kVersionMinor);
  store_be32(p + pcap::kSnapLengthOffset, pcap::kSnapLength);
  store_be32(p + pcap::kLinkTypeOffset, pcap::kLinkTypeEthernet);
  return header;
}

}  // namespace

PcapWriter::PcapWriter(const std::string& path, std::int64_t epoch_ns)
    : path_(path), epoch_ns_(epoch_ns), file_(std::fopen(path.c_str(), "wbe")) {
  if (file_ == nullptr) throw system_error("create capture file " + path_, errno, "Choose a writable path");
  const auto header = file_header();
  append(header.data(), header.size());
  flush();
}

void PcapWriter::append(const void* bytes, std::size_t size) noexcept {
  if (failure_ != 0 || std::fwrite(bytes, 1, size, file_.get()) == size) return;
  failure_ = errno != 0 ? errno : EIO;
  log_warn("capture " + path_ + " ends here: " + errno_text(failure_));
}

void PcapWriter::append_record_header(std::size_t frame_bytes, Ps time) noexcept {
  const std::int64_t time_ns = epoch_ns_ + time / kNanosecond;
  std::array<std::byte, pcap::kRecordHeaderBytes> head;
  store_be32(head.data(), static_cast<std::uint32_t>(time_ns / pcap::kNanosecondsPerSecond));
  store_be32(head.data() + 4, static_cast<std::uint32_t>(time_ns % pcap::kNanosecondsPerSecond));
  store_be32(head.data() + 8, static_cast<std::uint32_t>(frame_bytes));
  store_be32(head.data() + 12, static_cast<std::uint32_t>(frame_bytes));
  append(head.data(), head.size());
}

void PcapWriter::write_frame(std::span<const std::byte> frame, Ps time) noexcept {
  append_record_header(frame.size(), time);
  append(frame.data(), frame.size());
}

void PcapWriter::write(const FrameInfo& info, std::span<const std::byte> udp_payload, Ps time) noexcept {
  assert(udp_payload.size() <= kMaxUdpPayloadBytes);
  std::array<std::byte, kMaxFrameHeaderBytes> head;
  const std::size_t head_bytes = encode_frame_headers(info, udp_payload, head);
  append_record_header(head_bytes + udp_payload.size(), time);
  append(head.data(), head_bytes);
  append(udp_payload.data(), udp_payload.size());
}

void PcapWriter::write_segments(const FrameInfo& info, std::span<const std::byte> payload, std::size_t segment_bytes,
                                Ps time) noexcept {
  assert(segment_bytes > 0);
  FrameInfo segment_info = info;
  while (!payload.empty()) {
    const std::size_t n = std::min(segment_bytes, payload.size());
    write(segment_info, payload.first(n), time);
    payload = payload.subspan(n);
    ++segment_info.ip_id;
  }
}

void PcapWriter::flush() {
  if (failure_ == 0 && std::fflush(file_.get()) != 0) failure_ = errno;
  if (failure_ != 0) throw system_error("write capture file " + path_, failure_, "The capture is incomplete");
}

}  // namespace tensorwire::wire
