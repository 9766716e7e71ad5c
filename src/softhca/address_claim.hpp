// Who owns an address: one Hca per address of a network namespace. The lock is an abstract AF_UNIX listener
// "\0tensorwire/hca/<ip>", which vanishes with its process and is also where other Hcas of this host knock for the
// same-host link; the packets' socket is UDP 4791 on that address.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "softhca/hca.hpp"
#include "softhca/unique_fd.hpp"

struct sockaddr_un;

namespace tensorwire::softhca {

struct AddressClaim {
  std::uint32_t ipv4 = 0;  ///< host order
  UniqueFd rendezvous;     ///< SOCK_SEQPACKET listener, non-blocking
  UniqueFd udp;            ///< bound to ipv4:4791, non-blocking, otherwise untouched
};

/// Claims the device's address; for loopback the first free one of 127.0.0.1 to 127.0.0.254.
/// @throws Error (EBUSY text) naming the address when another process owns it, or naming who is in the way when port
/// 4791 is taken by a socket that is not an Hca's.
[[nodiscard]] AddressClaim claim_address(const DeviceInfo& device);

/// Claims exactly `ipv4`. Nothing when another Hca owns it. @throws Error when port 4791 is taken by a foreign socket.
[[nodiscard]] std::optional<AddressClaim> try_claim(std::uint32_t ipv4);

/// The rendezvous address of the Hca at `ipv4`; returns its length.
std::uint32_t rendezvous_address(std::uint32_t ipv4, sockaddr_un& out) noexcept;

}  // namespace tensorwire::softhca
