// Broadcast, from the root to all by itself or along a tree. No rank hears of more than one other: only the ranks below
// one that disagrees can see it.
#include <bit>

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

}  // namespace

Program build_broadcast(const Shape& shape, std::uint32_t rank, WriteSource source) {
  ProgramBuilder builder{Algorithm::kDirect, shape, rank};
  if (rank == shape.root) {
    send(builder, rotated_peers(shape.ranks, rank), shape.bytes(), source);
  } else {
    receive(builder, shape.root, {}, shape.bytes(), source);
  }
  return builder.finish();
}

// Places count from the root. The parent of a place is that place without its lowest bit; its children are the places
// with one lower bit more. Those with the most places below them are served first.
Program build_broadcast_tree(const Shape& shape, std::uint32_t rank, WriteSource source) {
  ProgramBuilder builder{Algorithm::kTree, shape, rank};
  const auto rank_at = [&](std::uint32_t place) { return (place + shape.root) % shape.ranks; };
  const std::uint32_t place = (rank + shape.ranks - shape.root) % shape.ranks;
  const std::uint32_t lowest_bit = place == 0 ? std::bit_ceil(shape.ranks) : place & (~place + 1);
  std::vector<std::uint32_t> children;
  for (std::uint32_t bit = lowest_bit / 2; bit != 0; bit /= 2) {
    if (place + bit < shape.ranks) children.push_back(rank_at(place + bit));
  }
  if (place == 0) {
    send(builder, children, shape.bytes(), source);
  } else {
    receive(builder, rank_at(place - lowest_bit), children, shape.bytes(), source);
  }
  return builder.finish();
}

}  // namespace tensorwire::collective
