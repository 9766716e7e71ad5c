// Words: data that is its own flag. Each rank writes 16-byte units into the others' scratch, and a word is there as
// soon as it is not "nothing". No flag, no fence before the data is used, not a byte more than the tensor. The idea is
// Lamport's; NaNs are what makes room for "nothing": whichever of them goes in, the same one comes out of the sum.
// Integers have no such value.
//
// Places. Lane, sender and round have a place of their own, eight rounds in turn. Whoever took a word puts "nothing" in
// its place. A thread sends one round ahead of the one it takes: before it sends round r + 1 it has taken round r - 1,
// which the same thread of the peer sent after it had taken, and emptied, all rounds up to r - 3. A fence at every
// second round makes that visible in time: emptied (r), fence, sent (r + 4 at the latest), taken there, fence there,
// sent (r + 8).
#pragma once

#include "cuda/arithmetic.cuh"
#include "cuda/protocol.cuh"

namespace tensorwire::cuda {

__device__ inline std::uint64_t sendable(std::uint32_t low, std::uint32_t high) {
  const std::uint64_t word = static_cast<std::uint64_t>(high) << 32 | low;
  return word == kNothing ? kNothing - 1 : word;  // another NaN in its lowest element
}

__device__ inline Words words_of(const Unit& unit) {
  return {sendable(unit.words[0], unit.words[1]), sendable(unit.words[2], unit.words[3])};
}

__device__ inline Unit unit_of(const Words& words) {
  return {{static_cast<std::uint32_t>(words.low), static_cast<std::uint32_t>(words.low >> 32),
           static_cast<std::uint32_t>(words.high), static_cast<std::uint32_t>(words.high >> 32)}};
}

__device__ inline bool there(const Words& words) { return words.low != kNothing && words.high != kNothing; }

/// One rank's end of this block's lane. kMost: the most ranks it is compiled for; their words are looked at together.
template <class Type, std::uint32_t kMost>
class WordLane {
 public:
  __device__ explicit WordLane(const Peers& peers) : peers_(peers), ranks_(kMost == 2 ? 2 : peers.layout.ranks) {}

  /// Unit `at` of round `number` (of the lane, since the communicator was made) to all peers.
  __device__ void send(std::uint64_t number, std::uint32_t at, const Unit& mine) const {
    const Words words = words_of(mine);
    between_steps(peers_, 1, number);
    for (std::uint32_t step = 1; step < ranks_; ++step) {
      const std::uint32_t peer = kMost == 2 ? 1 - peers_.rank : (peers_.rank + step) % ranks_;
      store_words(place(peer, peers_.rank, number, at), words);
    }
  }

  /// Waits for that unit of all peers, sums it in rank order and empties its places. False: the communicator has
  /// failed.
  [[nodiscard]] __device__ bool take(Wait& wait, collective::Op op, std::uint64_t number, std::uint32_t at,
                                     const Unit& mine, Unit& result) const {
    if constexpr (kMost == 2) return take_of_two(wait, op, number, at, mine, result);
    Words words[kMost];
    std::uint32_t missing = kMost;
    std::uint32_t last = kMost;  // that was missing
    do {
      missing = kMost;
#pragma unroll
      for (std::uint32_t peer = 0; peer < kMost; ++peer) {
        if (is_peer(peer)) words[peer] = load_words(place(peers_.rank, peer, number, at));
      }
#pragma unroll
      for (std::uint32_t peer = 0; peer < kMost; ++peer) {
        if (is_peer(peer) && !here(words[peer])) missing = peer;
      }
      if (missing == kMost) break;
      last = missing;
    } while (!wait.over(missing));
    if (missing != kMost) return false;
    if (last != kMost) wait.came(last);

    Sum<Type> sum;
#pragma unroll
    for (std::uint32_t rank = 0; rank < kMost; ++rank) {
      if (rank < ranks_) sum.add(op, rank == 0, either(rank == peers_.rank, mine, unit_of(words[rank])));
    }
    result = sum.result(op, ranks_);
    between_steps(peers_, 2, number);
    if (planted(peers_, Mistake::kWordsNotEmptied)) return true;
#pragma unroll
    for (std::uint32_t peer = 0; peer < kMost; ++peer) {
      if (is_peer(peer)) store_words(place(peers_.rank, peer, number, at), {kNothing, kNothing});
    }
    return true;
  }

  /// After the units of a round are taken, when more rounds follow.
  __device__ void end_round(std::uint64_t number) const {
    if (number % kFenceEvery == 0) __threadfence_system();
  }

 private:
  /// As take(), with one peer: its place is looked up once. Of two, the order does not matter.
  [[nodiscard]] __device__ bool take_of_two(Wait& wait, collective::Op op, std::uint64_t number, std::uint32_t at,
                                            const Unit& mine, Unit& result) const {
    const std::uint32_t peer = 1 - peers_.rank;
    std::byte* const from = place(peers_.rank, peer, number, at);
    Words words = load_words(from);
    if (!here(words)) {
      do {
        if (wait.over(peer)) return false;
        words = load_words(from);
      } while (!here(words));
      wait.came(peer);
    }
    Sum<Type> sum;
    sum.add(op, true, mine);
    sum.add(op, false, unit_of(words));
    result = sum.result(op, 2);
    between_steps(peers_, 2, number);
    if (!planted(peers_, Mistake::kWordsNotEmptied)) store_words(from, {kNothing, kNothing});
    return true;
  }

  [[nodiscard]] __device__ bool here(const Words& words) const {
    if (planted(peers_, Mistake::kWordsHalfLooked)) return words.low != kNothing;
    return there(words);
  }
  [[nodiscard]] __device__ bool is_peer(std::uint32_t rank) const { return rank < ranks_ && rank != peers_.rank; }
  /// Where `sender` writes unit `at` of a round for `receiver`.
  [[nodiscard]] __device__ std::byte* place(std::uint32_t receiver, std::uint32_t sender, std::uint64_t number,
                                            std::uint32_t at) const {
    const auto turn = planted(peers_, Mistake::kWordsOnePlace) ? 0 : static_cast<std::uint32_t>(number) % kWordRing;
    return peers_.scratch[receiver] + peers_.layout.words_at(blockIdx.x, sender, turn) + std::size_t{at} * kUnitBytes;
  }

  const Peers& peers_;
  std::uint32_t ranks_;
};

}  // namespace tensorwire::cuda
