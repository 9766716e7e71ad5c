#include "softhca/remote_pull.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "transport/withdrawals.hpp"

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

/// The probe word, the pieces, and the count of withdrawals: two more than a message has.
struct Vector {
  std::array<iovec, transport::kMaxSge + 2> entries;
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

std::uint64_t count_address(const PullSource& source, std::uint32_t qpn) noexcept {
  return source.withdrawals + transport::Withdrawals::index_of(qpn) * sizeof(std::uint64_t);
}

/// The entries are copied in their order. So the count is read after the bytes, and the sender counts before its
/// application learns that the memory is its own again: an unchanged count says that the bytes are the message's.
PullStatus pull_from_process(const PullSource& source, const Standing& standing, std::span<const RemotePiece> from,
                             std::span<const transport::Piece> to, std::uint64_t offset, std::uint64_t bytes) noexcept {
  std::uint64_t probe = 0;
  std::uint64_t withdrawals = 0;
  Vector local;
  Vector remote;
  local.add(reinterpret_cast<std::uint64_t>(&probe), sizeof probe);
  remote.add(source.probe.address, sizeof probe);
  for_range(to, offset, bytes, [&](const auto&, std::uint64_t address, std::uint64_t n) { local.add(address, n); });
  for_range(from, offset, bytes, [&](const auto&, std::uint64_t address, std::uint64_t n) { remote.add(address, n); });
  local.add(reinterpret_cast<std::uint64_t>(&withdrawals), sizeof withdrawals);
  remote.add(count_address(source, standing.qpn), sizeof withdrawals);

  const ssize_t n = ::process_vm_readv(static_cast<pid_t>(source.pid), local.entries.data(), local.count,
                                       remote.entries.data(), remote.count, 0);
  if (n < 0) return status_of_errno(errno);
  if (probe != source.probe.value) return PullStatus::kPeerGone;
  if (static_cast<std::uint64_t>(n) != sizeof probe + bytes + sizeof withdrawals) return PullStatus::kMemoryGone;
  return withdrawals == standing.withdrawals ? PullStatus::kOk : PullStatus::kWithdrawn;
}

constexpr std::size_t kBufferBytes = 16 * 1024;

/// Into memory that no system call reaches (MemoryRegion::staged): by way of a buffer.
PullStatus pull_through_buffer(const PullSource& source, const Standing& standing, std::span<const RemotePiece> from,
                               std::span<const transport::Piece> to, std::uint64_t offset,
                               std::uint64_t bytes) noexcept {
  std::array<std::byte, kBufferBytes> buffer;
  while (bytes != 0) {
    const std::uint64_t n = std::min<std::uint64_t>(bytes, buffer.size());
    // A piece that ends with the buffer, and of which nothing before it is used.
    const transport::Piece here{nullptr, reinterpret_cast<std::uint64_t>(buffer.data()) - offset,
                                static_cast<std::uint32_t>(offset + n)};
    const PullStatus status = pull_from_process(source, standing, from, {&here, 1}, offset, n);
    if (status != PullStatus::kOk) return status;
    bool there = true;
    std::span<const std::byte> rest = std::span{buffer}.first(n);
    for_range(to, offset, n, [&](const transport::Piece& piece, std::uint64_t address, std::uint64_t length) {
      there = there && piece.mr->ops->store(address, rest.first(length), nullptr);
      rest = rest.subspan(length);
    });
    if (!there) return PullStatus::kMemoryGone;
    offset += n;
    bytes -= n;
  }
  return PullStatus::kOk;
}

/// The bytes are in our own address space: MemoryOps copies them and survives if either side was unmapped.
PullStatus copy_in_process(const PullSource& source, const Standing& standing, std::span<const RemotePiece> from,
                           std::span<const transport::Piece> to, std::uint64_t offset, std::uint64_t bytes) noexcept {
  bool there = true;
  std::uint64_t done = 0;
  for_range(to, offset, bytes, [&](const transport::Piece& piece, std::uint64_t address, std::uint64_t n) {
    for_range(from, offset + done, n, [&](const RemotePiece&, std::uint64_t address_there, std::uint64_t m) {
      const auto* const begin = reinterpret_cast<const std::byte*>(address_there);
      there = there && piece.mr->ops->store(address, {begin, static_cast<std::size_t>(m)}, nullptr);
      address += m;
    });
    done += n;
  });
  if (!there) return PullStatus::kMemoryGone;
  // By the kernel, as from elsewhere: the other HCA of this process may have gone with its counts.
  std::uint64_t withdrawals = 0;
  const iovec local{&withdrawals, sizeof withdrawals};
  const iovec remote{reinterpret_cast<void*>(count_address(source, standing.qpn)), sizeof withdrawals};
  const ssize_t n = ::process_vm_readv(static_cast<pid_t>(source.pid), &local, 1, &remote, 1, 0);
  return n == sizeof withdrawals && withdrawals == standing.withdrawals ? PullStatus::kOk : PullStatus::kWithdrawn;
}

}  // namespace

PullStatus pull(const PullSource& source, const Standing& standing, std::span<const RemotePiece> from,
                std::span<const transport::Piece> to, std::uint64_t offset, std::uint64_t bytes) noexcept {
  if (bytes == 0) return PullStatus::kOk;
  const bool staged =
      std::any_of(to.begin(), to.end(), [](const auto& piece) { return piece.mr != nullptr && piece.mr->staged; });
  if (staged && !source.same_process) return pull_through_buffer(source, standing, from, to, offset, bytes);
  return source.same_process ? copy_in_process(source, standing, from, to, offset, bytes)
                             : pull_from_process(source, standing, from, to, offset, bytes);
}

}  // namespace tensorwire::softhca
