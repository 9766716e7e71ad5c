// All-reduce through slots, piece by piece: what is bound by bandwidth. Each byte crosses the link once for two ranks
// (one-shot), 2 (n - 1) / n times for more (two-shot). A lane sends one piece ahead of the one it waits for, so that
// the link works while flags travel; the other lanes fill what gaps are left.
#include "cuda/crew.cuh"
#include "cuda/dispatch.cuh"

namespace tensorwire::cuda {

namespace {

struct Piece {
  std::uint64_t number;  ///< of this lane, since the communicator was made; the flag that announces it is number + 1
  std::size_t first;     ///< its units in the tensor
  std::size_t size;
};

__device__ std::byte* slot_of(const Peers& peers, std::uint32_t receiver, Phase phase, std::uint32_t sender,
                              const Piece& piece) {
  if (planted(peers, Mistake::kSharedRegion))
    return peers.scratch[receiver] + peers.layout.words_at(blockIdx.x, sender, 0);
  return peers.scratch[receiver] +
         peers.layout.slot_at(phase, blockIdx.x, sender, static_cast<std::uint32_t>(piece.number % kRing));
}

__device__ std::byte* flag_of(const Peers& peers, std::uint32_t receiver, Flag flag, std::uint32_t sender) {
  return peers.scratch[receiver] + peers.layout.flag_at(flag, blockIdx.x, sender);
}

/// After all threads of the crew are through with a piece: tells the peers, one thread for each.
__device__ void announce(const Peers& peers, const Crew& crew, Flag flag, const Piece& piece) {
  between_steps(peers, 7 + static_cast<std::uint32_t>(flag), piece.number);
  if (!planted(peers, Mistake::kNoMeetingBeforeFlag)) crew.meet();
  const std::uint32_t peer = crew.index;
  if (peer < peers.layout.ranks && peer != peers.rank) {
    release_word(flag_of(peers, peer, flag, peers.rank), piece.number + 1);
  }
}

/// Waits until the flags of all peers have come to `count`. False: the communicator has failed, as all threads see:
/// none leaves alone, or a barrier would wait for it. `failed` is shared by the crew.
__device__ bool arrived(const Peers& peers, const Crew& crew, Flag flag, std::uint64_t count, bool* failed) {
  if (crew.index == 0) *failed = false;
  crew.meet();
  const std::uint32_t peer = crew.index;
  if (peer < peers.layout.ranks && peer != peers.rank) {
    Wait wait(peers, static_cast<std::uint32_t>(count), flag != Flag::kConsumed);
    const std::byte* word = flag_of(peers, peers.rank, flag, peer);
    bool gave_up = false;
    while (!gave_up && acquire_word(word) < count) gave_up = wait.over(peer);
    if (gave_up) *failed = true;
    wait.came(peer);
  }
  crew.meet();
  return !*failed;
}

/// A lane's way through its share: pieces 0, 1, ... of it.
struct Route {
  std::uint64_t number;  ///< of piece 0
  std::size_t first;
  std::size_t size;
  std::uint32_t piece_units;

  [[nodiscard]] __device__ std::size_t pieces() const { return (size + piece_units - 1) / piece_units; }
  /// `shift`: from this rank's part of the tensor to another one, in units.
  [[nodiscard]] __device__ Piece piece(std::size_t at, std::size_t shift = 0) const {
    const std::size_t begin = at * piece_units;
    return {number + at, first + shift + begin, min(std::size_t{piece_units}, size - begin)};
  }
};

template <class Type>
using TensorOf = Tensor<typename Type::Storage>;

constexpr std::uint32_t kMostOfCrew = 512;

/// Two ranks: each gives the other all it has. One crew sends, as far ahead as the ring goes; the other one sums.
template <class Type>
__global__ void __launch_bounds__(2 * kMostOfCrew) all_reduce_slots_two(const __grid_constant__ AllReduceJob job) {
  __shared__ bool failed[2];
  // In place, a sum may not be stored before its unit was sent: by the other crew's thread of the same index, which has
  // sent so many pieces.
  __shared__ volatile std::uint32_t sent[kMostOfCrew];
  const Peers& peers = job.peers;
  const std::uint32_t peer = 1 - peers.rank;
  const TensorOf<Type> tensor(job.in, job.out, job.count, job.aligned);
  const Share share = share_of_lane(units_of<Type>(job.count), job.lane_units);
  const std::uint32_t half = blockDim.x / 2;
  const bool sends = threadIdx.x < half;
  const Crew crew{threadIdx.x % half, half, sends ? 1U : 2U};
  if (sends) sent[crew.index] = 0;
  after_predecessor();
  const JournalStart journal = journal_start(peers);
  const Start start = start_of(peers, Counter::kSlots);
  if (__syncthreads_or(start.failed)) return;  // all or none, or a crew would wait for who left
  open_journal(peers, journal);
  const Route route{start.count, share.first, share.size, job.piece_units};
  const std::size_t pieces = route.pieces();
  __syncthreads();
  if (threadIdx.x == 0) keep(peers, Counter::kSlots, start.count + pieces);

  if (sends) {
    for (std::size_t at = 0; at < pieces; ++at) {
      const Piece piece = route.piece(at);
      const bool ring_is_full = piece.number >= kRing && !planted(peers, Mistake::kRingIgnored);
      if (ring_is_full && !arrived(peers, crew, Flag::kConsumed, piece.number + 1 - kRing, &failed[0])) return;
      std::byte* slot = slot_of(peers, peer, Phase::kScatter, peers.rank, piece);
      if (planted(peers, Mistake::kFlagBeforeData)) announce(peers, crew, Flag::kScattered, piece);
      between_steps(peers, 10, piece.number);
      in_batches<4, Unit>(
          crew, piece.size, [&](std::size_t unit) { return tensor.load(piece.first + unit); },
          [&](std::size_t unit, const Unit& data) { store_slot(slot, unit, data); });
      sent[crew.index] = static_cast<std::uint32_t>(at + 1);
      announce(peers, crew, Flag::kScattered, piece);
    }
    return;
  }
  struct Pair {
    Unit mine;
    Unit theirs;
  };
  for (std::size_t at = 0; at < pieces; ++at) {
    const Piece piece = route.piece(at);
    if (!arrived(peers, crew, Flag::kScattered, piece.number + 1, &failed[1])) return;
    // The other crew may only stand still because the communicator has failed; then nobody needs the sums.
    Wait wait(peers, static_cast<std::uint32_t>(piece.number));
    while (sent[crew.index] <= at && !wait.over(peer)) continue;
    const std::byte* slot = slot_of(peers, peers.rank, Phase::kScatter, peer, piece);
    if (planted(peers, Mistake::kConsumedTooEarly)) announce(peers, crew, Flag::kConsumed, piece);
    between_steps(peers, 11, piece.number);
    in_batches<2, Pair>(
        crew, piece.size,
        [&](std::size_t unit) {
          return Pair{tensor.load(piece.first + unit), take_slot(slot, unit)};
        },
        [&](std::size_t unit, const Pair& data) {
          Sum<Type> sum;
          sum.add(job.op, true, either(peers.rank == 0, data.mine, data.theirs));
          sum.add(job.op, false, either(peers.rank == 0, data.theirs, data.mine));
          tensor.store(piece.first + unit, sum.result(job.op, 2));
        });
    announce(peers, crew, Flag::kConsumed, piece);
  }
  if (crew.index == 0) note_end();
}

/// Any number of ranks: rank p sums part p of the tensor and gives the result to all.
template <class Type>
__global__ void __launch_bounds__(512) all_reduce_slots_any(const __grid_constant__ AllReduceJob job) {
  __shared__ bool failed;
  const Crew crew = whole_block();
  const Peers& peers = job.peers;
  const std::uint32_t ranks = peers.layout.ranks;
  const TensorOf<Type> tensor(job.in, job.out, job.count, job.aligned);
  after_predecessor();
  const JournalStart journal = journal_start(peers);
  const Start start = start_of(peers, Counter::kSlots);
  if (__syncthreads_or(start.failed)) return;  // all or none, or a crew would wait for who left
  open_journal(peers, journal);
  // Parts are equally long, so that all ranks count the same pieces; of the last ones some units lie behind the end.
  const std::size_t part = (units_of<Type>(job.count) + ranks - 1) / ranks;
  const Share share = share_of_lane(part, job.lane_units);
  const Route route{start.count, share.first, share.size, job.piece_units};

  const auto scatter = [&](std::size_t at) {
    for (std::uint32_t step = 1; step < ranks; ++step) {
      const std::uint32_t peer = (peers.rank + step) % ranks;
      const Piece piece = route.piece(at, peer * part);
      std::byte* slot = slot_of(peers, peer, Phase::kScatter, peers.rank, piece);
      in_batches<4, Unit>(
          crew, piece.size, [&](std::size_t unit) { return tensor.load(piece.first + unit); },
          [&](std::size_t unit, const Unit& data) { store_slot(slot, unit, data); });
    }
    announce(peers, crew, Flag::kScattered, route.piece(at));
  };
  const auto reduce = [&](std::size_t at) {
    const Piece piece = route.piece(at, peers.rank * part);
    for (std::size_t unit = threadIdx.x; unit < piece.size; unit += blockDim.x) {
      Unit data[kMaxRanks];
#pragma unroll
      for (std::uint32_t rank = 0; rank < kMaxRanks; ++rank) {
        if (rank >= ranks) continue;
        data[rank] = rank == peers.rank ? tensor.load(piece.first + unit)
                                        : take_slot(slot_of(peers, peers.rank, Phase::kScatter, rank, piece), unit);
      }
      Sum<Type> sum;
#pragma unroll
      for (std::uint32_t rank = 0; rank < kMaxRanks; ++rank) {
        if (rank < ranks) sum.add(job.op, rank == 0, data[rank]);
      }
      const Unit result = sum.result(job.op, ranks);
      tensor.store(piece.first + unit, result);
      for (std::uint32_t step = 1; step < ranks; ++step) {
        const std::uint32_t peer = (peers.rank + step) % ranks;
        store_slot(slot_of(peers, peer, Phase::kGather, peers.rank, piece), unit, result);
      }
    }
    announce(peers, crew, Flag::kGathered, piece);
  };
  const auto gather = [&](std::size_t at) {
    for (std::uint32_t step = 1; step < ranks; ++step) {
      const std::uint32_t peer = (peers.rank + step) % ranks;
      const Piece piece = route.piece(at, peer * part);
      const std::byte* slot = slot_of(peers, peers.rank, Phase::kGather, peer, piece);
      in_batches<4, Unit>(
          crew, piece.size, [&](std::size_t unit) { return take_slot(slot, unit); },
          [&](std::size_t unit, const Unit& data) { tensor.store(piece.first + unit, data); });
    }
  };

  const std::size_t pieces = route.pieces();
  if (pieces > 0) scatter(0);
  for (std::size_t at = 0; at < pieces; ++at) {
    if (at + 1 < pieces) scatter(at + 1);
    if (!arrived(peers, crew, Flag::kScattered, start.count + at + 1, &failed)) return;
    reduce(at);
    if (at == 0) continue;
    if (!arrived(peers, crew, Flag::kGathered, start.count + at, &failed)) return;
    gather(at - 1);
  }
  if (pieces > 0) {
    if (!arrived(peers, crew, Flag::kGathered, start.count + pieces, &failed)) return;
    gather(pieces - 1);
  }
  __syncthreads();
  if (threadIdx.x == 0) keep(peers, Counter::kSlots, start.count + pieces);
  if (threadIdx.x == 0) note_end();
}

const AllReduceKernels kKernels{{&all_reduce_slots_two<Float32>, &all_reduce_slots_two<Float16>,
                                 &all_reduce_slots_two<Bfloat16>, &all_reduce_slots_two<Int32>},
                                {&all_reduce_slots_any<Float32>, &all_reduce_slots_any<Float16>,
                                 &all_reduce_slots_any<Bfloat16>, &all_reduce_slots_any<Int32>}};

}  // namespace

int launch_slots(const AllReduceJob& job, collective::DType dtype, Grid grid, Stream stream) noexcept {
  return kKernels.launch(job, dtype, grid, stream);
}

int load_slots_kernels() noexcept { return kKernels.load(); }

}  // namespace tensorwire::cuda
