// Proof that both ends know the shared secret: HMAC-SHA256 over fresh nonces of both. The secret itself never travels
// and is never printed. What is proved is who joins; the bytes that follow are not encrypted.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

namespace tensorwire::bootstrap {

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;

using Nonce = std::array<std::byte, kNonceBytes>;
using Proof = std::array<std::byte, kProofBytes>;

/// From the operating system's entropy pool.
[[nodiscard]] Nonce fresh_nonce();

/// HMAC-SHA256 (RFC 2104, FIPS 180-4) of `message`; all zero when the secret is empty.
[[nodiscard]] Proof prove(const std::string& secret, std::span<const std::byte> message);

/// In time that does not depend on where they differ.
[[nodiscard]] bool same_proof(const Proof& a, const Proof& b) noexcept;

}  // namespace tensorwire::bootstrap
