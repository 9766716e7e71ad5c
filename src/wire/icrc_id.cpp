// The ICRC under another IPv4 identification. CRC is linear over GF(2): the register after a packet is the xor of the
// registers of its parts, so the identification contributes id(x) * x^(8 * bytes after it) mod P and nothing else.
//
// Polynomials are held as the reflected CRC holds them: bit 31 is the coefficient of x^0, so multiplying by x is a
// shift to the right.
#include <array>
#include <cstddef>

#include "wire/frame.hpp"
#include "wire/headers.hpp"
#include "wire/icrc.hpp"

namespace tensorwire::wire {

namespace {

constexpr std::uint32_t kPolynomial = 0xedb8'8320;  // without x^32
constexpr std::uint32_t kOne = 0x8000'0000;

constexpr std::uint32_t times_x(std::uint32_t a) noexcept { return (a >> 1) ^ ((a & 1) != 0 ? kPolynomial : 0); }

/// The polynomial has a constant term, so x has an inverse and the shift can be undone.
constexpr std::uint32_t over_x(std::uint32_t a) noexcept {
  return (a & kOne) != 0 ? ((a ^ kPolynomial) << 1) | 1 : a << 1;
}

/// a * b mod P. The loop ends with the highest power in `a`: a factor with few low powers is cheap.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) noexcept {
  std::uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    product ^= b & (0 - (a >> 31));
    b = (b >> 1) ^ (kPolynomial & (0 - (b & 1)));
  }
  return product;
}

constexpr std::uint32_t times_x8(std::uint32_t a) noexcept {
  for (int i = 0; i < 8; ++i) a = times_x(a);
  return a;
}

constexpr std::uint32_t over_x8(std::uint32_t a) noexcept {
  for (int i = 0; i < 8; ++i) a = over_x(a);
  return a;
}

/// Powers of x^8 (or of its inverse) for every distance inside a packet of the largest path MTU: one look-up there, one
/// more multiplication for each 4 KiB beyond it.
class Powers {
 public:
  constexpr explicit Powers(std::uint32_t (*step)(std::uint32_t)) noexcept {
    std::uint32_t power = kOne;
    for (std::uint32_t& entry : table_) {
      entry = power;
      power = step(power);
    }
  }

  [[nodiscard]] constexpr std::uint32_t operator[](std::size_t exponent) const noexcept {
    std::uint32_t power = kOne;
    for (; exponent >= table_.size(); exponent -= kStride) power = multiply(power, table_[kStride]);
    return power == kOne ? table_[exponent] : multiply(power, table_[exponent]);
  }

 private:
  static constexpr std::size_t kStride = 4096;
  std::array<std::uint32_t, kStride + 128> table_{};
};

constexpr Powers kForward{&times_x8};
constexpr Powers kBackward{&over_x8};
static_assert(multiply(kForward[4100], kBackward[4100]) == kOne);

constexpr std::size_t kIdBytes = 2;
/// Bytes after the identification in the IPv4 header, and all of the UDP header.
constexpr std::size_t kHeadersAfterId = kIpv4Bytes - 6 + kUdpBytes;

/// The register takes the first byte of a big-endian field into its low bits.
constexpr std::uint32_t swap_bytes(std::uint32_t id) noexcept { return ((id & 0xff) << 8) | ((id >> 8) & 0xff); }

/// What the segments of one send are numbered with.
constexpr std::size_t kSegmentIds = 64;

/// What each of them adds to the register behind the UDP header.
constexpr std::array<std::uint32_t, kSegmentIds> kShiftOfSegment = [] {
  std::array<std::uint32_t, kSegmentIds> shifts{};
  for (std::uint32_t id = 0; id < kSegmentIds; ++id)
    shifts[id] = multiply(swap_bytes(id) << 16, kForward[kHeadersAfterId + 2 * kIdBytes]);
  return shifts;
}();

}  // namespace

std::uint32_t IcrcRun::begin(const Flow& flow, std::size_t udp_payload_bytes, std::uint16_t ip_id) noexcept {
  if (udp_payload_bytes != udp_payload_bytes_ || flow != flow_) {
    flow_ = flow;
    udp_payload_bytes_ = udp_payload_bytes;
    register_ = icrc_begin(flow, udp_payload_bytes, 0);
  }
  if (!flow.is_ipv4()) return register_;
  return ip_id < kSegmentIds ? register_ ^ kShiftOfSegment[ip_id] : icrc_shift_id(register_, ip_id, kHeadersAfterId);
}

std::uint32_t icrc_shift_id(std::uint32_t crc, std::uint16_t ip_id, std::size_t tail_bytes) noexcept {
  // Two bytes fed into a register of zero are xored into its low 16 bits and then multiplied by x^16. Moving them up by
  // 16 bits (over x^16) first leaves multiply() at most 16 steps; the exponent makes up for it.
  return crc ^ multiply(swap_bytes(ip_id) << 16, kForward[tail_bytes + 2 * kIdBytes]);
}

int icrc_solve_id(std::uint32_t difference, std::size_t udp_payload_bytes) noexcept {
  if (udp_payload_bytes < kIcrcBytes) return -1;
  const std::size_t tail_bytes = kHeadersAfterId + udp_payload_bytes - kIcrcBytes;
  const std::uint32_t fed = multiply(difference, kBackward[tail_bytes + kIdBytes]);
  return fed >> 16 == 0 ? static_cast<int>(swap_bytes(fed)) : -1;
}

}  // namespace tensorwire::wire
