// A meeting place as 128 bytes that a program carries to its other ranks by whatever means it has: rank 0's addresses
// and port, the job's name and a fresh secret. Who holds the bytes may join; who does not cannot.
//
// The process that makes an id opens the port at once and keeps it until its rank 0 joins, so nobody can take it
// between.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "bootstrap/options.hpp"

namespace tensorwire::bootstrap {

class Group;

inline constexpr std::size_t kUniqueIdBytes = 128;
using UniqueId = std::array<std::byte, kUniqueIdBytes>;

/// To be called in the process that will be rank 0. TENSORWIRE_BOOTSTRAP_ADDRESS chooses what the others connect to;
/// without it the id names up to four addresses of this host, and they try one after another.
/// @throws Error: no port can be opened, the variable names neither an address nor an interface.
[[nodiscard]] UniqueId make_unique_id();

/// How rank `rank` of `world_size` joins by this id. Rank 0's takes the open port with it, once per id, unless the
/// caller has it.
/// @throws Error: not an id, made by another version, rank 0 in a process that did not make the id (or used it before).
[[nodiscard]] GroupOptions options_of(std::span<const std::byte, kUniqueIdBytes> id, int rank, int world_size,
                                      std::shared_ptr<Socket> port = nullptr);

/// A part of the id that is random and no secret.
[[nodiscard]] std::uint64_t job_number(std::span<const std::byte, kUniqueIdBytes> id) noexcept;

/// The open port of an id that this process made; null if it was taken.
[[nodiscard]] std::shared_ptr<Socket> take_port(std::span<const std::byte, kUniqueIdBytes> id);

/// How this rank joins the group of all ranks of `group` that give the same colour, in the order of their keys (and of
/// their ranks, where keys are alike). A collective call. Nothing for a negative colour, which takes no part.
/// @throws Error as Group's calls do.
[[nodiscard]] std::optional<GroupOptions> split(Group& group, int color, int key);

}  // namespace tensorwire::bootstrap
