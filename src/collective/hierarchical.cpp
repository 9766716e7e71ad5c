// All-reduce in three steps: inside groups of ranks that are near each other, across the groups, inside again.
#include <fmt/format.h>

#include "base/error.hpp"
#include "collective/algorithms.hpp"
#include "collective/builder_parts.hpp"

namespace tensorwire::collective {

namespace {

/// Where a rank stands: its mates are the others of its group, its partners those in the same place of other groups.
struct Standing {
  std::uint32_t group;
  std::uint32_t place;
  std::vector<std::uint32_t> mates;     ///< places, rotated
  std::vector<std::uint32_t> partners;  ///< groups, rotated
};

}  // namespace

// The tensor is cut into a chunk for each place, a chunk into a part for each group. Slots of mates hold two areas of a
// chunk, slots of partners two areas of a part. The send slot holds this group's sum of the rank's chunk, then (a chunk
// on) the finished chunk.
//
// A partner sends after it has matched the signatures of its mates; so who has matched those of its mates and its
// partners knows that all are equal.
Program build_hierarchical(const Shape& shape, std::uint32_t rank, std::uint32_t group_ranks) {
  if (shape.ranks == 1 && rank == 0) return build_alone(Algorithm::kHierarchical, shape);
  ProgramBuilder builder{Algorithm::kHierarchical, shape, rank, group_ranks};
  if (group_ranks == 0 || shape.ranks % group_ranks != 0) {
    throw Error{"build a hierarchical all-reduce",
                fmt::format("{} ranks are not groups of {}", shape.ranks, group_ranks)};
  }
  refuse_average_of_parts(shape, "hierarchical all-reduce");
  const std::uint32_t groups = shape.ranks / group_ranks;
  const Standing own{rank / group_ranks, rank % group_ranks, rotated_peers(group_ranks, rank % group_ranks),
                     rotated_peers(groups, rank / group_ranks)};
  const auto mate = [&](std::uint32_t place) { return own.group * group_ranks + place; };
  const auto partner = [&](std::uint32_t group) { return group * group_ranks + own.place; };
  const Chunks chunks{shape.bytes(), group_ranks};
  const std::uint64_t chunk_offset = chunks.offset(own.place);
  const std::uint64_t chunk_bytes = chunks.bytes(own.place);
  const Chunks parts{chunk_bytes, groups};
  const std::uint64_t part_bytes = parts.bytes(own.group);
  const Location group_sum{Place::kSendSlot, 0, 0};
  const auto finished = [&](std::uint64_t offset) { return Location{Place::kSendSlot, 0, chunks.stride() + offset}; };

  // Inside: each mate gets its chunk.
  for (const std::uint32_t place : own.mates) {
    send_block(builder, mate(place), chunks.offset(place), chunks.bytes(place));
  }
  const std::uint16_t mates_matched = match_all(builder, own.mates, mate);
  std::uint16_t group_reduced = mates_matched;
  if (chunk_bytes != 0) {
    std::vector<Location> operands;
    for (std::uint32_t place = 0; place < group_ranks; ++place) {
      operands.push_back(place == own.place ? Location{Place::kInput, 0, chunk_offset} : peer_slot(mate(place)));
    }
    group_reduced = builder.reduce_part(operands, group_sum, chunk_bytes, {mates_matched});
  }

  // Across: each partner gets its part of the group's sum.
  for (const std::uint32_t group : own.partners) {
    builder.write(partner(group), 0, {Place::kSendSlot, 0, parts.offset(group)}, 0, parts.bytes(group),
                  {group_reduced});
  }
  const std::uint16_t partners_matched = match_all(builder, own.partners, partner);
  std::uint16_t part_reduced = partners_matched;
  if (part_bytes != 0) {
    const std::uint64_t part_offset = parts.offset(own.group);
    std::vector<Location> operands;
    for (std::uint32_t group = 0; group < groups; ++group) {
      operands.push_back(group == own.group ? Location{Place::kSendSlot, 0, part_offset} : peer_slot(partner(group)));
    }
    part_reduced = builder.reduce(operands, {Place::kOutput, 0, chunk_offset + part_offset}, finished(part_offset),
                                  part_bytes, {group_reduced, partners_matched});
    for (const std::uint32_t group : own.partners) {
      builder.write(partner(group), 1, finished(part_offset), parts.stride(), part_bytes, {part_reduced});
    }
  }
  std::vector<std::uint16_t> chunk_finished{part_reduced, partners_matched, mates_matched};
  for (const std::uint32_t group : own.partners) {
    std::vector<std::uint16_t> read{part_reduced, partners_matched};
    if (const std::uint64_t bytes = parts.bytes(group); bytes != 0) {
      const std::uint16_t arrived = builder.arrival(partner(group), 1);
      const Location slot = peer_slot(partner(group), parts.stride());
      if (!own.mates.empty()) {
        read.push_back(builder.copy(slot, finished(parts.offset(group)), bytes, {arrived, partners_matched}));
        chunk_finished.push_back(read.back());
      }
      read.push_back(builder.copy(slot, {Place::kOutput, 0, chunk_offset + parts.offset(group)}, bytes,
                                  {arrived, partners_matched, mates_matched}));
    }
    builder.release(partner(group), read);
  }

  // Inside again: each mate gets the finished chunk.
  for (const std::uint32_t place : own.mates) {
    if (chunk_bytes != 0) builder.write(mate(place), 1, finished(0), chunks.stride(), chunk_bytes, chunk_finished);
    std::uint16_t copied = kNoStep;
    if (chunks.bytes(place) != 0) {
      const std::uint16_t arrived = builder.arrival(mate(place), 1);
      copied = builder.copy(peer_slot(mate(place), chunks.stride()), {Place::kOutput, 0, chunks.offset(place)},
                            chunks.bytes(place), {arrived, mates_matched, partners_matched});
    }
    builder.release(mate(place), {group_reduced, copied});
  }
  return builder.finish();
}

}  // namespace tensorwire::collective
