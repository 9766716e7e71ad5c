// Broadcast, from the root to all by itself or along a tree. No rank hears of more than one other: only the ranks below
// one that disagrees can see it.
#include <bit>
#include <optional>

#include "collective/algorithms.hpp"
#include "collective/builder_parts.hpp"

namespace tensorwire::collective {

namespace {

/// What a rank does with what its parent sends: keeps it, passes it on to its children, gives the slot back.
void receive(ProgramBuilder& builder, std::uint32_t parent, const std::vector<std::uint32_t>& children,
             std::uint64_t bytes, WriteSource source) {
  const std::uint16_t matched = builder.match({builder.arrival(parent, 0)});
  std::vector<std::uint16_t> before_release{matched};
  Location from = bytes != 0 ? peer_slot(parent) : Location{};
  std::uint16_t ready = matched;
  if (source == WriteSource::kSendSlot && bytes != 0 && !children.empty()) {
    from = {Place::kSendSlot, 0, 0};
    ready = builder.copy(peer_slot(parent), from, bytes, {matched});
    before_release.push_back(ready);
  }
  for (const std::uint32_t child : children) {
    const std::uint16_t written = builder.write(child, 0, from, 0, bytes, {ready});
    // The parent may overwrite its slot when it is released: by then it must not be needed for a retransmission.
    if (from.place == Place::kPeerSlot) before_release.push_back(builder.sent(written));
  }
  if (bytes != 0) before_release.push_back(builder.copy(peer_slot(parent), {Place::kOutput, 0, 0}, bytes, {matched}));
  builder.release(parent, before_release);
}

/// The root's own part.
void send(ProgramBuilder& builder, const std::vector<std::uint32_t>& children, std::uint64_t bytes,
          WriteSource source) {
  const std::vector<std::uint16_t> input_is_free = write_to_all(builder, children, bytes, source);
  if (bytes != 0 && source != WriteSource::kInputInPlace) keep_input(builder, 0, bytes, source, input_is_free, kNoStep);
}

/// Who is above a rank, who below.
struct Neighbours {
  std::optional<std::uint32_t> parent;  ///< none: the root
  std::vector<std::uint32_t> children;
};

Neighbours around_root(const Shape& shape, std::uint32_t rank) {
  if (rank == shape.root) return {std::nullopt, rotated_peers(shape.ranks, rank)};
  return {shape.root, {}};
}

// Places count from the root. The parent of a place is that place without its lowest bit; its children are the places
// with one lower bit more. Those with the most places below them are served first.
Neighbours in_tree(const Shape& shape, std::uint32_t rank) {
  Neighbours neighbours;
  const auto rank_at = [&](std::uint32_t place) { return (place + shape.root) % shape.ranks; };
  const std::uint32_t place = (rank + shape.ranks - shape.root) % shape.ranks;
  const std::uint32_t lowest_bit = place == 0 ? std::bit_ceil(shape.ranks) : place & (~place + 1);
  for (std::uint32_t bit = lowest_bit / 2; bit != 0; bit /= 2) {
    if (place + bit < shape.ranks) neighbours.children.push_back(rank_at(place + bit));
  }
  if (place != 0) neighbours.parent = rank_at(place - lowest_bit);
  return neighbours;
}

Program through_slots(Algorithm algorithm, const Shape& shape, std::uint32_t rank, const Neighbours& neighbours,
                      WriteSource source) {
  ProgramBuilder builder{algorithm, shape, rank};
  if (neighbours.parent) {
    receive(builder, *neighbours.parent, neighbours.children, shape.bytes(), source);
  } else {
    send(builder, neighbours.children, shape.bytes(), source);
  }
  return builder.finish();
}

// Why a rank may write the output of another: see two_shot_window.cpp; it has matched the signature of that one.
Program into_windows(Algorithm algorithm, const Shape& shape, std::uint32_t rank, const Neighbours& neighbours,
                     WriteSource source) {
  ProgramBuilder builder{algorithm, shape, rank};
  const std::uint64_t bytes = shape.bytes();
  std::vector<std::uint32_t> all = neighbours.children;
  if (neighbours.parent) all.push_back(*neighbours.parent);
  const std::uint16_t matched = agree(builder, all);
  std::uint16_t arrived = kNoStep;
  if (neighbours.parent) {
    if (bytes != 0) arrived = builder.arrival_in_output(*neighbours.parent, 1);
    builder.release(*neighbours.parent, {matched, arrived});
  } else if (bytes != 0 && source != WriteSource::kInputInPlace) {
    keep_input(builder, 0, bytes, source, {}, matched);
  }
  const Location from{neighbours.parent ? Place::kOutput : Place::kInput, 0, 0};
  for (const std::uint32_t child : neighbours.children) {
    trade_outputs(builder, child, from, 0, bytes, 0, {matched, arrived});
  }
  return builder.finish();
}

}  // namespace

Program build_broadcast(const Shape& shape, std::uint32_t rank, WriteSource source) {
  return through_slots(Algorithm::kDirect, shape, rank, around_root(shape, rank), source);
}

Program build_broadcast_tree(const Shape& shape, std::uint32_t rank, WriteSource source) {
  return through_slots(Algorithm::kTree, shape, rank, in_tree(shape, rank), source);
}

Program build_broadcast_window(const Shape& shape, std::uint32_t rank, WriteSource source) {
  return into_windows(Algorithm::kWindow, shape, rank, around_root(shape, rank), source);
}

Program build_broadcast_tree_window(const Shape& shape, std::uint32_t rank, WriteSource source) {
  return into_windows(Algorithm::kTreeWindow, shape, rank, in_tree(shape, rank), source);
}

}  // namespace tensorwire::collective
