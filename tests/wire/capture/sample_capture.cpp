// Writes a capture with the wire room alone, for programs that others wrote to look at:
//   sample_capture opcodes FILE      packets of every opcode of RC, UC and UD, random fields and sizes
//   sample_capture all-reduce FILE   WRITE with immediate of 128 KiB each way, as super-packets, and their ACKs
#include <cstdio>
#include <string_view>

#include "../packets.hpp"
#include "base/error.hpp"
#include "wire/pcap.hpp"

namespace tensorwire::wire::testing {
namespace {

constexpr std::int64_t kEpochNs = 1'800'000'000'000'000'000;
constexpr std::size_t kMtu = 4096;

FrameInfo frame_info(std::uint32_t source, std::uint32_t destination, std::uint16_t ip_id) {
  return {.flow = ipv4_flow(source, destination, 0xc123, kRoceUdpPort), .tos = 26 << 2 | 2, .ttl = 64, .ip_id = ip_id};
}

void write_opcodes(PcapWriter& writer) {
  Random random(1);
  Ps now = 0;
  for (const Opcode opcode : known_opcodes()) {
    if (opcode == Opcode::kCnp) continue;  // tshark 4.0 has it as 0x80
    for (int i = 0; i < 8; ++i) {
      const std::size_t payload_bytes = random_payload_bytes(random, opcode);
      const FrameInfo info = frame_info(0x7f000001, 0x7f000002, static_cast<std::uint16_t>(random.next()));
      const Headers headers = random_headers(random, opcode, pad_of(payload_bytes));
      writer.write(info, make_datagram(headers, random_bytes(random, payload_bytes), info.flow, info.ip_id),
                   now += kMicrosecond);
    }
  }
}

/// One WRITE WITH IMMEDIATE of `packets` full packets, as its sender hands it to the kernel: the First, then
/// super-packets of equal segments, then the Last with immediate.
class MessageWriter {
 public:
  MessageWriter(PcapWriter& writer, std::uint32_t source, std::uint32_t destination)
      : writer_(writer), info_(frame_info(source, destination, 0)) {}

  void write(std::uint32_t packets, Random& random, Ps now) {
    Headers h;
    h.opcode = Opcode::kRcWriteFirst;
    h.dest_qpn = 0x1001;
    h.psn = kPsnMask - 3;  // wraps
    h.va = 0x7f0000001000;
    h.rkey = 0x1234abcd;
    h.dma_length = packets * static_cast<std::uint32_t>(kMtu);
    append(h, random, 0);
    send(now);
    h.opcode = Opcode::kRcWriteMiddle;
    constexpr std::uint32_t kSegments = 15;
    for (std::uint32_t i = 1; i + 1 < packets; ++i) {
      h.psn = psn_add(h.psn, 1);
      append(h, random, static_cast<std::uint16_t>((i - 1) % kSegments));
      if (i % kSegments == 0) send(now);
    }
    send(now);
    h.opcode = Opcode::kRcWriteLastImm;
    h.psn = psn_add(h.psn, 1);
    h.ack_req = true;
    h.immediate = 0x00100201;
    append(h, random, 0);
    send(now);
  }

 private:
  void append(const Headers& h, Random& random, std::uint16_t ip_id) {
    const auto datagram = make_datagram(h, random_bytes(random, kMtu), info_.flow, ip_id);
    segment_bytes_ = datagram.size();
    super_.insert(super_.end(), datagram.begin(), datagram.end());
  }

  void send(Ps now) {
    writer_.write_segments(info_, super_, segment_bytes_, now);
    super_.clear();
  }

  PcapWriter& writer_;
  FrameInfo info_;
  std::vector<std::byte> super_;
  std::size_t segment_bytes_ = 1;
};

void write_all_reduce(PcapWriter& writer) {
  Random random(2);
  constexpr std::uint32_t kA = 0x7f000001;
  constexpr std::uint32_t kB = 0x7f000002;
  for (int round = 0; round < 4; ++round) {
    const Ps now = round * kMillisecond;
    MessageWriter(writer, kA, kB).write(32, random, now);
    MessageWriter(writer, kB, kA).write(32, random, now);
    Headers ack;
    ack.opcode = Opcode::kRcAck;
    ack.dest_qpn = 0x1001;
    ack.psn = psn_add(kPsnMask - 3, 31);
    ack.syndrome = kSyndromeAck | kCreditsInvalid;
    ack.msn = static_cast<std::uint32_t>(round) + 1;
    for (const auto& info : {frame_info(kA, kB, 0), frame_info(kB, kA, 0)}) {
      writer.write(info, make_datagram(ack, {}, info.flow, 0), now + kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace tensorwire::wire::testing

int main(int argc, char** argv) {
  using namespace tensorwire::wire;
  const std::string_view kind = argc == 3 ? argv[1] : "";
  if (kind != "opcodes" && kind != "all-reduce") {
    std::fputs("usage: sample_capture opcodes|all-reduce FILE\n", stderr);
    return 2;
  }
  try {
    PcapWriter writer(argv[2], testing::kEpochNs);
    kind == "opcodes" ? testing::write_opcodes(writer) : testing::write_all_reduce(writer);
    writer.flush();
  } catch (const tensorwire::Error& error) {
    std::fprintf(stderr, "sample_capture: %s\n", error.what());
    return 1;
  }
  return 0;
}
