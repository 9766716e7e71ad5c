// What the wire room costs per packet: the CRC of bytes, the CRC fused into the copy against copy and CRC one after the
// other, the header stack, and the search for an IPv4 identification. Ratios hold within one run on a quiet machine.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "base/bytes.hpp"
#include "base/random.hpp"
#include "wire/frame.hpp"
#include "wire/headers.hpp"
#include "wire/icrc.hpp"

namespace tensorwire::wire {
namespace {

constexpr Flow kFlow = ipv4_flow(0x7f000001, 0x7f000002, 0xc000, kRoceUdpPort);

std::vector<std::byte> random_bytes(std::size_t size) {
  Random random(1);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

void set_bytes(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * static_cast<std::int64_t>(bytes));
}

/// A message of 256 KiB, packet after packet, as sender and receiver of one all-reduce walk it: the bytes come from the
/// second-level cache, not from the first.
constexpr std::size_t kMessageBytes = 256 * 1024;

template <typename Packet>
void walk_message(benchmark::State& state, Packet&& packet) {
  const auto packet_bytes = static_cast<std::size_t>(state.range(0));
  const auto from = random_bytes(kMessageBytes);
  std::vector<std::byte> to(kMessageBytes);
  for (auto _ : state) {
    for (std::size_t at = 0; at < kMessageBytes; at += packet_bytes) {
      benchmark::DoNotOptimize(packet(to.data() + at, std::span(from).subspan(at, packet_bytes)));
    }
    benchmark::ClobberMemory();
  }
  set_bytes(state, kMessageBytes);
}

void copy_only(benchmark::State& state) {
  walk_message(state, [](std::byte* to, std::span<const std::byte> from) {
    std::memcpy(to, from.data(), from.size());
    return 0;
  });
}

void crc_only(benchmark::State& state) {
  walk_message(state, [](std::byte*, std::span<const std::byte> from) { return crc_update(0, from); });
}

void copy_then_crc(benchmark::State& state) {
  walk_message(state, [](std::byte* to, std::span<const std::byte> from) {
    std::memcpy(to, from.data(), from.size());
    return crc_update(0, from);
  });
}

void copy_and_crc_fused(benchmark::State& state) {
  walk_message(state, [](std::byte* to, std::span<const std::byte> from) { return crc_copy(0, to, from); });
}

void packet_sizes(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t bytes : {64, 1024, 4096, 65'536}) benchmark->Arg(bytes);
}

BENCHMARK(copy_only)->Apply(packet_sizes);
BENCHMARK(crc_only)->Apply(packet_sizes);
BENCHMARK(copy_then_crc)->Apply(packet_sizes);
BENCHMARK(copy_and_crc_fused)->Apply(packet_sizes);

Headers write_only_headers() {
  Headers h;
  h.opcode = Opcode::kRcWriteOnlyImm;
  h.dest_qpn = 0x123456;
  h.psn = 77;
  h.va = 0x7f0000001000;
  h.rkey = 0xabcdef01;
  h.dma_length = 4096;
  h.immediate = 42;
  return h;
}

void encode_headers(benchmark::State& state) {
  Headers h = write_only_headers();
  std::vector<std::byte> out(kMaxHeaderBytes);
  for (auto _ : state) {
    benchmark::DoNotOptimize(h);
    benchmark::DoNotOptimize(encode(h, out));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(encode_headers);

void parse_headers(benchmark::State& state) {
  std::vector<std::byte> datagram(kMaxHeaderBytes + 4096 + kIcrcBytes);
  const std::size_t stack = encode(write_only_headers(), datagram);
  datagram.resize(stack + 4096 + kIcrcBytes);
  Parsed parsed;
  for (auto _ : state) {
    benchmark::DoNotOptimize(datagram.data());
    benchmark::DoNotOptimize(parse(datagram, parsed));
    benchmark::DoNotOptimize(parsed);
  }
}
BENCHMARK(parse_headers);

/// What the ICRC costs beside the payload: pseudo-header and header stack.
void icrc_of_headers(benchmark::State& state) {
  std::vector<std::byte> stack(kMaxHeaderBytes);
  stack.resize(encode(write_only_headers(), stack));
  std::uint16_t id = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(icrc_headers(icrc_begin(kFlow, stack.size() + 4100, id++), stack));
  }
}
BENCHMARK(icrc_of_headers);

/// The same for the packets of one send.
void icrc_of_headers_in_a_run(benchmark::State& state) {
  std::vector<std::byte> stack(kMaxHeaderBytes);
  stack.resize(encode(write_only_headers(), stack));
  IcrcRun run;
  unsigned id = 0;
  for (auto _ : state) {
    const std::uint32_t crc = run.begin(kFlow, stack.size() + 4100, static_cast<std::uint16_t>(id++ % 15));
    benchmark::DoNotOptimize(icrc_headers(crc, stack));
  }
}
BENCHMARK(icrc_of_headers_in_a_run);

void shift_id(benchmark::State& state) {
  std::uint32_t crc = 0x12345678;
  unsigned id = 0;
  for (auto _ : state) crc = icrc_shift_id(crc, static_cast<std::uint16_t>(id++ % 64), 4150);
  benchmark::DoNotOptimize(crc);
}
BENCHMARK(shift_id);

void solve_id(benchmark::State& state) {
  constexpr std::size_t kUdpPayload = 4096 + kBthBytes + kIcrcBytes;
  const std::uint32_t difference = icrc_shift_id(0, 37, kIpv4Bytes - 6 + kUdpBytes + kUdpPayload - kIcrcBytes);
  for (auto _ : state) {
    std::uint32_t d = difference;
    benchmark::DoNotOptimize(d);
    benchmark::DoNotOptimize(icrc_solve_id(d, kUdpPayload));
  }
}
BENCHMARK(solve_id);

}  // namespace
}  // namespace tensorwire::wire

BENCHMARK_MAIN();
