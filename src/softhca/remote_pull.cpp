#include "softhca/remote_pull.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace tensorwire::softhca {
namespace {

/// Calls `use(address, length)` for the runs of `pieces` that make up [offset, offset + bytes).
template <class PieceType, class Use>
void for_range(std::span<const PieceType> pieces, std::uint64_t offset, std::uint64_t bytes, Use use) noexcept {
  for (const PieceType& piece : pieces) {
    if (bytes == 0) return;
    if (offset >= piece.length) {
      offset -= piece.length;
      continue;
    }
    const std::uint64_t here = std::min<std::uint64_t>(piece.length - offset, bytes);
    use(piece, piece.address + offset, here);
    bytes -= here;
    offset = 0;
  }
}

/// The probe word and then the pieces: one more than a message has.
struct Vector {
  std::array<iovec, transport::kMaxSge + 1> entries;
  unsigned long count = 0;

  void add(std::uint64_t address, std::uint64_t length) noexcept {
    entries[count++] = {reinterpret_cast<void*>(address), length};
  }
};

/// The probe word comes first: a call that copied nothing could not even read that, whoever is at fault. Where a later
/// page is missing, the call says how much it copied up to there.
PullStatus status_of_errno(int error) noexcept {
  return error == ENOMEM || error == EINVAL ? PullStatus::kMemoryGone : PullStatus::kPeerGone;
}

PullStatus pull_from_process(const PullSource& source, std::span<const RemotePiece> from,
                             std::span<const transport::Piece> to, std::uint64_t offset, std::uint64_t bytes) noexcept {
  std::uint64_t probe = 0;
  Vector local;
  Vector remote;
  local.add(reinterpret_cast<std::uint64_t>(&probe), sizeof probe);
  remote.add(source.probe.address, sizeof probe);
  for_range(to, offset, bytes, [&](const auto&, std::uint64_t address, std::uint64_t n) { local.add(address, n); });
  for_range(from, offset, bytes, [&](const auto&, std::uint64_t address, std::uint64_t n) { remote.add(address, n); });

  const ssize_t n = ::process_vm_readv(static_cast<pid_t>(source.pid), local.entries.data(), local.count,
                                       remote.entries.data(), remote.count, 0);
  if (n < 0) return status_of_errno(errno);
  if (probe != source.probe.value) return PullStatus::kPeerGone;
  return static_cast<std::uint64_t>(n) == bytes + sizeof probe ? PullStatus::kOk : PullStatus::kMemoryGone;
}

/// The bytes are in our own address space: MemoryOps copies them and survives if either side was unmapped.
PullStatus copy_in_process(std::span<const RemotePiece> from, std::span<const transport::Piece> to,
                           std::uint64_t offset, std::uint64_t bytes) noexcept {
  bool there = true;
  std::uint64_t done = 0;
  for_range(to, offset, bytes, [&](const transport::Piece& piece, std::uint64_t address, std::uint64_t n) {
    for_range(from, offset + done, n, [&](const RemotePiece&, std::uint64_t source, std::uint64_t m) {
      const auto* const begin = reinterpret_cast<const std::byte*>(source);
      there = there && piece.mr->ops->store(address, {begin, static_cast<std::size_t>(m)}, nullptr);
      address += m;
    });
    done += n;
  });
  return there ? PullStatus::kOk : PullStatus::kMemoryGone;
}

}  // namespace

PullStatus pull(const PullSource& source, std::span<const RemotePiece> from, std::span<const transport::Piece> to,
                std::uint64_t offset, std::uint64_t bytes) noexcept {
  if (bytes == 0) return PullStatus::kOk;
  return source.same_process ? copy_in_process(from, to, offset, bytes)
                             : pull_from_process(source, from, to, offset, bytes);
}

}  // namespace tensorwire::softhca
