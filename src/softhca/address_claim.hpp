// Who may use an address. An address of a real interface is shared by any number of processes of one user: each claims
// a slot of it (process_slot.hpp), and all bind UDP port 4791 together (SO_REUSEPORT; receive_group.hpp tells how a
// packet finds its process). A loopback address belongs to one process, because there is another one for the next.
//
// The claim is an abstract AF_UNIX listener "\0tensorwire/hca/<ip>/<slot>" (loopback: "\0tensorwire/hca/<ip>"): the
// kernel frees the name when its process dies, however it dies, and it is seen in the whole network namespace and
// nowhere else, as the address is. The listener is also where other Hcas of this host knock for the same-host link.
#pragma once

#include <cstdint>
#include <optional>

#include "base/unique_fd.hpp"
#include "softhca/hca.hpp"
#include "softhca/process_slot.hpp"

struct sockaddr_un;

namespace tensorwire::softhca {

struct AddressClaim {
  std::uint32_t ipv4 = 0;  ///< host order
  std::uint8_t slot = 0;
  bool shared = false;  ///< other processes may have other slots
  UniqueFd rendezvous;  ///< SOCK_SEQPACKET listener, non-blocking
  UniqueFd neighbours;  ///< where shared: SOCK_DGRAM, for messages between the slots (neighbours.hpp)
  UniqueFd udp;         ///< bound to ipv4:4791, non-blocking, otherwise untouched
};

/// Claims a slot of the device's address; for loopback the first free one of 127.0.0.1 to 127.0.0.254.
/// @throws Error naming the address: every slot or loopback address is taken (EBUSY), port 4791 is taken by a socket
/// that is not an Hca's, or the address is in use by processes of another user.
[[nodiscard]] AddressClaim claim_address(const DeviceInfo& device);

/// Claims exactly `ipv4`. Nothing when it is a loopback address that another Hca owns, or when every slot is taken.
/// @throws Error as claim_address().
[[nodiscard]] std::optional<AddressClaim> try_claim(std::uint32_t ipv4);

/// A UDP socket bound to gid:4791, non-blocking. `shared`: together with other processes of this user.
/// @throws Error when somebody else holds the port.
[[nodiscard]] UniqueFd bind_roce_port(const wire::Gid& gid, int interface_index, bool shared);

/// The rendezvous address of the Hca in `slot` of `ipv4`; returns its length.
std::uint32_t rendezvous_address(std::uint32_t ipv4, std::uint8_t slot, sockaddr_un& out) noexcept;
/// The address of its socket for messages from the other slots.
std::uint32_t neighbour_address(std::uint32_t ipv4, std::uint8_t slot, sockaddr_un& out) noexcept;

}  // namespace tensorwire::softhca
