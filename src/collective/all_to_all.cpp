// All-to-all: a block of every rank for every rank, all of one size or of sizes that all ranks know.
#include "base/error.hpp"
#include "collective/algorithms.hpp"
#include "collective/builder_parts.hpp"

namespace tensorwire::collective {

namespace {

/// Sizes of the blocks between pairs and where they lie.
class Blocks {
 public:
  Blocks(const Shape& shape, const BuildOptions& options) : shape_(shape), options_(options) {
    const std::size_t pairs = std::size_t{shape.ranks} * shape.ranks;
    if (options.counts.empty()) return;
    if (options.counts.size() != pairs) throw Error{"build an all-to-all", "it needs one count for each pair of ranks"};
    if (options.source == WriteSource::kInputInPlace) {
      throw Error{"build an all-to-all in place", "its blocks differ in size", "Use an output of its own"};
    }
  }

  /// Of this segment.
  [[nodiscard]] std::uint64_t bytes(std::uint32_t from, std::uint32_t to) const noexcept {
    if (options_.counts.empty()) return shape_.bytes();
    const std::uint64_t all = count(from, to);
    const std::uint64_t left = all - std::min(all, options_.segment_first);
    return std::min(left, shape_.count) * element_bytes(shape_.dtype);
  }
  /// In the input of `from`.
  [[nodiscard]] std::uint64_t input_offset(std::uint32_t from, std::uint32_t to) const noexcept {
    if (options_.counts.empty()) return to * stride_bytes(shape_, options_.block_stride);
    std::uint64_t elements = 0;
    for (std::uint32_t r = 0; r < to; ++r) elements += count(from, r);
    return elements * element_bytes(shape_.dtype);
  }
  /// In the output of `to`.
  [[nodiscard]] std::uint64_t output_offset(std::uint32_t from, std::uint32_t to) const noexcept {
    if (options_.counts.empty()) return from * stride_bytes(shape_, options_.block_stride);
    std::uint64_t elements = 0;
    for (std::uint32_t r = 0; r < from; ++r) elements += count(r, to);
    return elements * element_bytes(shape_.dtype);
  }

 private:
  [[nodiscard]] std::uint64_t count(std::uint32_t from, std::uint32_t to) const noexcept {
    return options_.counts[std::size_t{from} * shape_.ranks + to];
  }

  const Shape& shape_;
  const BuildOptions& options_;
};

void keep_own(ProgramBuilder& builder, const Blocks& blocks, std::uint32_t rank, std::uint16_t matched) {
  const std::uint64_t own = blocks.bytes(rank, rank);
  if (own == 0) return;
  builder.copy({Place::kInput, 0, blocks.input_offset(rank, rank)},
               {Place::kOutput, 0, blocks.output_offset(rank, rank)}, own, {matched});
}

}  // namespace

Program build_all_to_all(const Shape& shape, std::uint32_t rank, const BuildOptions& options) {
  ProgramBuilder builder{Algorithm::kDirect, shape, rank};
  const Blocks blocks{shape, options};
  const std::vector<std::uint32_t> peers = rotated_peers(shape.ranks, rank);

  std::vector<std::uint16_t> sent(shape.ranks, kNoStep);
  for (const std::uint32_t peer : peers) {
    sent[peer] = send_block(builder, peer, blocks.input_offset(rank, peer), blocks.bytes(rank, peer));
  }
  const std::uint16_t matched = match_all(builder, peers);

  const bool in_place = options.source == WriteSource::kInputInPlace;
  if (!in_place) keep_own(builder, blocks, rank, matched);
  for (const std::uint32_t peer : peers) {
    std::uint16_t copied = kNoStep;
    if (const std::uint64_t bytes = blocks.bytes(peer, rank); bytes != 0) {
      // In place, the peer's block comes where the block for the peer was: that must have gone.
      const std::uint16_t gone = in_place ? sent[peer] : kNoStep;
      copied =
          builder.copy(peer_slot(peer), {Place::kOutput, 0, blocks.output_offset(peer, rank)}, bytes, {matched, gone});
    }
    builder.release(peer, {matched, copied});
  }
  return builder.finish();
}

// Why a rank may write the output of a peer: see two_shot_window.cpp.
Program build_all_to_all_window(const Shape& shape, std::uint32_t rank, const BuildOptions& options) {
  if (options.source == WriteSource::kInputInPlace) {
    throw Error{"build an all-to-all into windows, in place", "blocks would arrive where others have not left",
                "Use an output of its own, or slots"};
  }
  ProgramBuilder builder{Algorithm::kWindow, shape, rank};
  const Blocks blocks{shape, options};
  const std::vector<std::uint32_t> peers = rotated_peers(shape.ranks, rank);

  const std::uint16_t matched = agree(builder, peers);
  for (const std::uint32_t peer : peers) {
    trade_outputs(builder, peer, {Place::kInput, 0, blocks.input_offset(rank, peer)}, blocks.output_offset(rank, peer),
                  blocks.bytes(rank, peer), blocks.bytes(peer, rank), {matched});
  }
  keep_own(builder, blocks, rank, matched);
  return builder.finish();
}

}  // namespace tensorwire::collective
