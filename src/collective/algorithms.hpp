// The builders, one for each algorithm: what one rank does for one sequence number of its pairs. Called through
// build_program() (builders.hpp). All throw Error on a bad shape or rank. Pure functions.
#pragma once

#include "collective/builders.hpp"

namespace tensorwire::collective {

/// A segment of what goes straight into outputs, which no slot bounds: long enough to hide that its place is told
/// first, short enough to fill a tree of ranks.
inline constexpr std::uint64_t kWindowSegmentBytes = 4 << 20;

/// Every rank writes its whole tensor to every other: one hop, (n-1) x bytes sent by each rank. Sums in rank order.
[[nodiscard]] Program build_one_shot(const Shape& shape, std::uint32_t rank,
                                     WriteSource source = WriteSource::kSendSlot);

/// Reduce-scatter, then all-gather: two hops, 2 x (n-1)/n x bytes sent by each rank. Sums in rank order.
[[nodiscard]] Program build_two_shot(const Shape& shape, std::uint32_t rank);

/// Two-shot whose all-gather goes from the user's output straight into the peers' outputs: the CPU touches nothing but
/// the reduction. Complete only when the all-gather is acknowledged. Sums in rank order.
[[nodiscard]] Program build_two_shot_window(const Shape& shape, std::uint32_t rank);

/// Reduce-scatter and all-gather around a ring: 2(n-1) hops, 2 x (n-1)/n x bytes sent by each rank, all to one
/// neighbour. Chunk c is summed as ((x[c+1] + x[c+2]) + ...) + x[c], indices modulo n, each partial sum rounded to the
/// tensor's type.
[[nodiscard]] Program build_ring(const Shape& shape, std::uint32_t rank);
/// The most ranks of a ring: all its messages carry one sequence number.
inline constexpr std::uint32_t kMaxRingRanks = kMaxMessages / 2 + 1;

/// Ranks in groups of `group_ranks`, neighbours in number: reduce-scatter inside the group, two-shot between the ranks
/// of equal place in their groups, all-gather inside the group. Each rank sends 2 x (n/g-1)/n x bytes out of its group.
/// Sums in rank order inside the groups, then in the order of the groups, the groups' sums rounded to the tensor's
/// type.
[[nodiscard]] Program build_hierarchical(const Shape& shape, std::uint32_t rank, std::uint32_t group_ranks);

/// Block j of every rank to rank j, which sums them in rank order. @param block_stride as in BuildOptions.
[[nodiscard]] Program build_reduce_scatter(const Shape& shape, std::uint32_t rank, std::uint64_t block_stride = 0);

/// Every rank's block to all others.
[[nodiscard]] Program build_all_gather(const Shape& shape, std::uint32_t rank,
                                       WriteSource source = WriteSource::kSendSlot, std::uint64_t block_stride = 0);
/// The same straight from the input into the peers' outputs, one hop later: each peer first tells where its output is.
/// The CPU copies nothing but the rank's own block, and that only where it is not in place.
[[nodiscard]] Program build_all_gather_window(const Shape& shape, std::uint32_t rank, WriteSource source,
                                              std::uint64_t block_stride = 0);

/// The root writes to all others. Nobody answers: the root knows nothing of the others' signatures.
[[nodiscard]] Program build_broadcast(const Shape& shape, std::uint32_t rank,
                                      WriteSource source = WriteSource::kSendSlot);
/// Along a binomial tree: ceil(log2 n) hops, and nobody sends more than that many times.
[[nodiscard]] Program build_broadcast_tree(const Shape& shape, std::uint32_t rank,
                                           WriteSource source = WriteSource::kSendSlot);
/// Both straight into the outputs: who is below tells first where its own is, and so shows its signature, too.
[[nodiscard]] Program build_broadcast_window(const Shape& shape, std::uint32_t rank, WriteSource source);
[[nodiscard]] Program build_broadcast_tree_window(const Shape& shape, std::uint32_t rank, WriteSource source);

/// A block of every rank for every rank. `source` says only whether the output is the input.
[[nodiscard]] Program build_all_to_all(const Shape& shape, std::uint32_t rank, const BuildOptions& options = {});
/// The same straight into the outputs. Not in place: two ranks would each wait for the other's block to be gone.
[[nodiscard]] Program build_all_to_all_window(const Shape& shape, std::uint32_t rank, const BuildOptions& options = {});

/// One tensor from shape.root to shape.peer; the programs of all other ranks are empty.
[[nodiscard]] Program build_send_recv(const Shape& shape, std::uint32_t rank,
                                      WriteSource source = WriteSource::kSendSlot);
/// The same straight from the input into the receiver's output: no CPU touches a byte.
[[nodiscard]] Program build_send_recv_window(const Shape& shape, std::uint32_t rank);

/// Every rank tells every other that it is there.
[[nodiscard]] Program build_barrier(const Shape& shape, std::uint32_t rank);

}  // namespace tensorwire::collective
