// Pulling payload out of another process's memory, straight into registered memory of ours: one system call and one
// copy, without the sender's help (process_vm_readv).
#pragma once

#include <cstdint>
#include <span>

#include "softhca/local_record.hpp"
#include "softhca/peer_socket.hpp"
#include "transport/memory.hpp"

namespace tensorwire::softhca {

enum class PullStatus : std::uint8_t {
  kOk,
  kMemoryGone,  ///< a page of either side is not there any more, or may not be touched that way
  kPeerGone,    ///< the process is not there, not the one that made the offer, or forbids us to read now
  kWithdrawn,   ///< the sender took the message back: the bytes may be of something else
};

/// Whose memory is read.
struct PullSource {
  std::uint32_t pid = 0;
  bool same_process = false;
  ProbeWord probe;
  std::uint64_t withdrawals = 0;  ///< address of its transport::Withdrawals
};

/// Whose message is pulled, and the count that says that it still stands.
struct Standing {
  std::uint32_t qpn = 0;
  std::uint64_t withdrawals = 0;
};

/// Copies `bytes` bytes that begin `offset` bytes into `from` to the same offset in `to`. Both cover [offset, offset +
/// bytes). Ascending. After anything but kOk an unknown part of the destination was written.
///
/// Costs, on one 3 GHz core: about 1 us for the call and the two page walks, then the speed of memcpy: a quarter of a
/// mebibyte takes 12 to 20 us. Callers that hold a lock bound `bytes`.
[[nodiscard]] PullStatus pull(const PullSource& source, const Standing& standing, std::span<const RemotePiece> from,
                              std::span<const transport::Piece> to, std::uint64_t offset, std::uint64_t bytes) noexcept;

}  // namespace tensorwire::softhca
