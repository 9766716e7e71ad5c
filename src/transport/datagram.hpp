// A packet as the bytes that a socket carries: headers, payload, pad and ICRC, made from the engine's description (by
// every link of packets), and judged on arrival (by the virtual wires: VirtualLoop and the fault simulator of the
// tests). No state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/engine.hpp"
#include "wire/headers.hpp"
#include "wire/icrc.hpp"

namespace tensorwire::transport {

/// Of the UDP payload of `desc`.
[[nodiscard]] std::size_t datagram_bytes(const TxDesc& desc) noexcept;

/// Fills `out`, which has datagram_bytes(), with the UDP payload of `desc`. `crc` is wire::icrc_begin() of the packet.
/// False when the memory of a piece is gone.
[[nodiscard]] bool serialise(const TxDesc& desc, std::uint32_t crc, std::span<std::byte> out) noexcept;

/// The ICRC of a UDP payload whose header stack is `header_bytes` long; its last four bytes are not read.
[[nodiscard]] std::uint32_t icrc_of(std::span<const std::byte> datagram, std::size_t header_bytes,
                                    const wire::Flow& flow, std::uint16_t ip_id) noexcept;

enum class Arrival : std::uint8_t { kGood, kBadIcrc, kMemoryGone };

/// Verifies the ICRC and copies the payload to the pieces of `verdict`; before the ICRC is known only where the verdict
/// permits that.
[[nodiscard]] Arrival place(std::span<const std::byte> datagram, const wire::Parsed& parsed, const RxVerdict& verdict,
                            const wire::Flow& flow, std::uint16_t ip_id) noexcept;

}  // namespace tensorwire::transport
