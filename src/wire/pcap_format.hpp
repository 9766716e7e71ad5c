// Numbers of the classic pcap file format that writer and reader share (draft-ietf-opsawg-pcap, section 4).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tensorwire::wire::pcap {

inline constexpr std::uint32_t kMagicNanoseconds = 0xa1b2'3c4d;
inline constexpr std::uint32_t kMagicMicroseconds = 0xa1b2'c3d4;
inline constexpr std::uint32_t kMagicPcapng = 0x0a0d'0d0a;  // reads the same in both byte orders
inline constexpr std::uint16_t kVersionMajor = 2;
inline constexpr std::uint16_t kVersionMinor = 4;
inline constexpr std::uint32_t kSnapLength = 262'144;
inline constexpr std::uint32_t kLinkTypeEthernet = 1;
inline constexpr std::uint32_t kLinkTypeMask = 0xffff;  // the upper half holds FCS bits

// File header: magic 4, major 2, minor 2, reserved 8, snap length 4, link type 4.
inline constexpr std::size_t kFileHeaderBytes = 24;
inline constexpr std::size_t kVersionOffset = 4;
inline constexpr std::size_t kSnapLengthOffset = 16;
inline constexpr std::size_t kLinkTypeOffset = 20;

// Record header: seconds 4, fraction 4, captured bytes 4, original bytes 4.
inline constexpr std::size_t kRecordHeaderBytes = 16;
inline constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;

}  // namespace tensorwire::wire::pcap
