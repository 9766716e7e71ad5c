// Messages between ranks over channels (layout.hpp): whatever all-gather, broadcast, all-to-all and send/recv are made
// of, and reduce-scatter, whose receiver sums. Each side of each message is a task of some warps of every block, and no
// task waits for another one of its kernel (in place aside): so a message moves as soon as its two ranks are there,
// whatever third ranks do.
//
// A place of a channel is written again when its receiver has said that it is taken. Lines are also emptied by whoever
// takes them, so that none can be taken for one of a later turn of the ring. A receiver's release of "taken" follows
// what it emptied or read, a sender's release of "arrived" what it stored (crew.meet() in between joins the crew's
// threads).
#include <type_traits>

#include "cuda/crew.cuh"
#include "cuda/dispatch.cuh"
#include "cuda/lines.cuh"

namespace tensorwire::cuda {

namespace {

/// Element of all types: tensors have two bytes' alignment at least.
using Half = Tensor<std::uint16_t>;

/// What the tasks of a block tell each other.
struct Shared {
  bool failed[kMostTasks];
  std::uint32_t left[kMostTasks];  ///< pieces of a task that were read out of its input
};

/// This rank's end of the channels that a block has with one peer.
class Channel {
 public:
  __device__ Channel(const Peers& peers, std::uint32_t peer) : peers_(peers), peer_(peer) {}

  __device__ std::uint64_t counted(ChannelCounter counter) const { return load_word(counter_at(counter)); }
  __device__ void count(ChannelCounter counter, std::uint64_t value) const { store_word(counter_at(counter), value); }

  /// What the peer has said of `flag`; and telling it.
  __device__ std::uint64_t heard(ChannelFlag flag) const {
    return acquire_word(peers_.scratch[peers_.rank] + peers_.layout.channel_flag_at(blockIdx.x, peer_, flag));
  }
  __device__ void tell(ChannelFlag flag, std::uint64_t value) const {
    release_word(peers_.scratch[peer_] + peers_.layout.channel_flag_at(blockIdx.x, peers_.rank, flag), value);
  }

  /// Where what I send lies, and what I receive.
  __device__ std::byte* slot_of_peer(std::uint64_t number) const { return slot(peer_, peers_.rank, number); }
  __device__ const std::byte* own_slot(std::uint64_t number) const { return slot(peers_.rank, peer_, number); }
  __device__ std::byte* lines_of_peer(std::uint64_t number) const { return lines(peer_, peers_.rank, number); }
  __device__ std::byte* own_lines(std::uint64_t number) const { return lines(peers_.rank, peer_, number); }

 private:
  __device__ std::byte* counter_at(ChannelCounter counter) const {
    return peers_.own + peers_.layout.channel_counter_at(blockIdx.x, peer_, counter);
  }
  __device__ std::byte* slot(std::uint32_t receiver, std::uint32_t sender, std::uint64_t number) const {
    return peers_.scratch[receiver] +
           peers_.layout.channel_slot_at(blockIdx.x, sender, static_cast<std::uint32_t>(number % kRing));
  }
  __device__ std::byte* lines(std::uint32_t receiver, std::uint32_t sender, std::uint64_t number) const {
    return peers_.scratch[receiver] +
           peers_.layout.channel_lines_at(blockIdx.x, sender, static_cast<std::uint32_t>(number % kRing));
  }

  const Peers& peers_;
  std::uint32_t peer_;
};

/// Never that of an empty line.
__device__ std::uint32_t flag_of(const Peers& peers, std::uint64_t number) {
  return static_cast<std::uint32_t>(number % peers.layout.flag_mask()) + 1;
}

/// One task of this block, as one of its threads sees it.
struct Work {
  const Peers& peers;
  const ExchangeTask& task;
  std::uint32_t number;  ///< of the task
  Crew crew;
  Shared& shared;
  Share share;

  [[nodiscard]] __device__ std::uint32_t pieces() const {
    if (task.piece_units == 0) return 1;
    return static_cast<std::uint32_t>((share.size + task.piece_units - 1) / task.piece_units);
  }
  /// The units of a piece, of the task's.
  [[nodiscard]] __device__ Share piece(std::uint32_t at) const {
    if (task.piece_units == 0) return share;
    const std::size_t begin = std::size_t{at} * task.piece_units;
    return {share.first + begin, min(std::size_t{task.piece_units}, share.size - begin)};
  }
  [[nodiscard]] __device__ Half tensor() const { return {task.in, task.out, task.bytes / 2, task.aligned}; }

  /// Until the peer has said `count`; false for the whole crew if it does not come. One thread's wait.
  __device__ bool heard(const Channel& channel, ChannelFlag flag, std::uint64_t count) const {
    if (crew.index == 0) await(channel, flag, count, task.peer);
    crew.meet();
    return !shared.failed[number];
  }
  __device__ void await(const Channel& channel, ChannelFlag flag, std::uint64_t count, std::uint32_t peer) const {
    Wait wait(peers, static_cast<std::uint32_t>(count), flag == ChannelFlag::kArrived);
    while (channel.heard(flag) < count) {
      if (!wait.over(peer)) continue;
      shared.failed[number] = true;
      return;
    }
    wait.came(peer);
  }
  /// Until the task that this one must stay behind of has read piece `at`. When that failed, nobody needs the result.
  __device__ void stay_behind(std::uint32_t at) const {
    if (task.behind == kNoTask) return;
    const volatile std::uint32_t& left = shared.left[task.behind];
    Wait wait(peers, at);
    while (left <= at && !wait.over(task.peer)) continue;
  }
  __device__ void has_left(std::uint32_t pieces) const {
    *static_cast<volatile std::uint32_t*>(&shared.left[number]) = pieces;
  }
};

__device__ void send_lines(const Work& work) {
  const Channel channel(work.peers, work.task.peer);
  const std::uint64_t number = channel.counted(ChannelCounter::kLinesSent);
  if (number >= kRing && !work.heard(channel, ChannelFlag::kLinesTaken, number + 1 - kRing)) return;
  std::byte* lines = channel.lines_of_peer(number);
  const Half tensor = work.tensor();
  between_steps(work.peers, 4, number);
  for (std::size_t unit = work.crew.index; unit < work.share.size; unit += work.crew.size) {
    store_lines(lines, unit, work.share.size, tensor.load(work.share.first + unit), flag_of(work.peers, number));
  }
  work.crew.meet();
  if (work.crew.index != 0) return;
  work.has_left(1);
  channel.count(ChannelCounter::kLinesSent, number + 1);
}

__device__ void send_slots(const Work& work) {
  const Channel channel(work.peers, work.task.peer);
  const std::uint64_t sent = channel.counted(ChannelCounter::kSent);
  const Half tensor = work.tensor();
  const std::uint32_t pieces = work.pieces();
  for (std::uint32_t at = 0; at < pieces; ++at) {
    const std::uint64_t number = sent + at;
    if (number >= kRing && !work.heard(channel, ChannelFlag::kTaken, number + 1 - kRing)) return;
    const Share piece = work.piece(at);
    std::byte* slot = channel.slot_of_peer(number);
    in_batches<4, Unit>(
        work.crew, piece.size, [&](std::size_t unit) { return tensor.load(piece.first + unit); },
        [&](std::size_t unit, const Unit& data) { store_slot(slot, unit, data); });
    between_steps(work.peers, 5, number);
    work.crew.meet();
    if (work.crew.index != 0) continue;
    work.has_left(at + 1);
    channel.tell(ChannelFlag::kArrived, number + 1);
  }
  if (work.crew.index == 0) channel.count(ChannelCounter::kSent, sent + pieces);
}

__device__ void receive_lines(const Work& work) {
  const Channel channel(work.peers, work.task.peer);
  const std::uint64_t number = channel.counted(ChannelCounter::kLinesReceived);
  std::byte* lines = channel.own_lines(number);
  const std::uint32_t flag = flag_of(work.peers, number);
  const Half tensor = work.tensor();
  work.stay_behind(0);
  Wait wait(work.peers, static_cast<std::uint32_t>(number), work.crew.index == 0);
  for (std::size_t unit = work.crew.index; unit < work.share.size; unit += work.crew.size) {
    UnitLines got = load_lines(lines, unit, work.share.size);
    while (!bear(work.peers, got, flag)) {
      if (wait.over(work.task.peer)) break;
      got = load_lines(lines, unit, work.share.size);
    }
    if (!bear(work.peers, got, flag)) break;  // failed; the crew still meets
    wait.came(work.task.peer);
    tensor.store(work.share.first + unit, unit_of(got));
    store_lines(lines, unit, work.share.size, {}, 0);
  }
  work.crew.meet();
  if (work.crew.index != 0) return;
  channel.tell(ChannelFlag::kLinesTaken, number + 1);
  channel.count(ChannelCounter::kLinesReceived, number + 1);
}

__device__ void receive_slots(const Work& work) {
  const Channel channel(work.peers, work.task.peer);
  const std::uint64_t received = channel.counted(ChannelCounter::kReceived);
  const Half tensor = work.tensor();
  const std::uint32_t pieces = work.pieces();
  for (std::uint32_t at = 0; at < pieces; ++at) {
    const std::uint64_t number = received + at;
    if (work.crew.index == 0) work.stay_behind(at);
    if (!work.heard(channel, ChannelFlag::kArrived, number + 1)) return;
    if (planted(work.peers, Mistake::kTakenTooEarly) && work.crew.index == 0) {
      channel.tell(ChannelFlag::kTaken, number + 1);
    }
    between_steps(work.peers, 6, number);
    const Share piece = work.piece(at);
    const std::byte* slot = channel.own_slot(number);
    in_batches<4, Unit>(
        work.crew, piece.size, [&](std::size_t unit) { return take_slot(slot, unit); },
        [&](std::size_t unit, const Unit& data) { tensor.store(piece.first + unit, data); });
    work.crew.meet();
    if (work.crew.index == 0) channel.tell(ChannelFlag::kTaken, number + 1);
  }
  if (work.crew.index == 0) channel.count(ChannelCounter::kReceived, received + pieces);
}

__device__ void copy(const Work& work) {
  const Half tensor = work.tensor();
  in_batches<4, Unit>(
      work.crew, work.share.size, [&](std::size_t unit) { return tensor.load(work.share.first + unit); },
      [&](std::size_t unit, const Unit& data) { tensor.store(work.share.first + unit, data); });
}

/// The sum of what all ranks have for this unit, in rank order.
template <class Type, class OfPeer>
__device__ Unit sum_of(const Peers& peers, collective::Op op, const Unit& mine, OfPeer of_peer) {
  const std::uint32_t ranks = peers.layout.ranks;
  Sum<Type> sum;
#pragma unroll
  for (std::uint32_t rank = 0; rank < kMaxRanks; ++rank) {
    if (rank < ranks) sum.add(op, rank == 0, rank == peers.rank ? mine : of_peer(rank));
  }
  return sum.result(op, ranks);
}

/// Thread i of the crew tells peer i that a piece is taken, and counts it.
__device__ void tell_all(const Work& work, ChannelFlag flag, ChannelCounter counter, std::uint64_t value) {
  const std::uint32_t peer = work.crew.index;
  if (peer >= work.peers.layout.ranks || peer == work.peers.rank) return;
  const Channel channel(work.peers, peer);
  channel.tell(flag, value);
  channel.count(counter, value);
}

/// All peers' channels have carried the same reductions, but messages besides: so each counts for itself.
template <class Type>
__device__ void reduce_lines(const Work& work, collective::Op op) {
  const Peers& peers = work.peers;
  const Tensor<typename Type::Storage> tensor(work.task.in, work.task.out,
                                              work.task.bytes / sizeof(typename Type::Storage), work.task.aligned);
  const auto is_peer = [&](std::uint32_t rank) { return rank < peers.layout.ranks && rank != peers.rank; };
  std::byte* lines[kMaxRanks] = {};
  std::uint32_t flags[kMaxRanks] = {};
#pragma unroll
  for (std::uint32_t peer = 0; peer < kMaxRanks; ++peer) {
    if (!is_peer(peer)) continue;
    const Channel channel(peers, peer);
    const std::uint64_t number = channel.counted(ChannelCounter::kLinesReceived);
    lines[peer] = channel.own_lines(number);
    flags[peer] = flag_of(peers, number);
  }
  Wait wait(peers, 0, work.crew.index == 0);
  bool gave_up = false;
  for (std::size_t unit = work.crew.index; unit < work.share.size && !gave_up; unit += work.crew.size) {
    const Unit mine = tensor.load(work.share.first + unit);
    UnitLines got[kMaxRanks];
    std::uint32_t missing = kMaxRanks;
    std::uint32_t last = kMaxRanks;  // that was missing
    do {
      missing = kMaxRanks;
#pragma unroll
      for (std::uint32_t peer = 0; peer < kMaxRanks; ++peer) {
        if (!is_peer(peer)) continue;
        got[peer] = load_lines(lines[peer], unit, work.share.size);
        if (!bear(peers, got[peer], flags[peer])) missing = peer;
      }
      if (missing == kMaxRanks) break;
      last = missing;
      gave_up = wait.over(missing);
    } while (!gave_up);
    if (gave_up) break;
    if (last != kMaxRanks) wait.came(last);
    tensor.store(work.share.first + unit,
                 sum_of<Type>(peers, op, mine, [&](std::uint32_t peer) { return unit_of(got[peer]); }));
#pragma unroll
    for (std::uint32_t peer = 0; peer < kMaxRanks; ++peer) {
      if (is_peer(peer)) store_lines(lines[peer], unit, work.share.size, {}, 0);
    }
  }
  work.crew.meet();
  if (!is_peer(work.crew.index)) return;
  const std::uint64_t number = Channel(peers, work.crew.index).counted(ChannelCounter::kLinesReceived);
  tell_all(work, ChannelFlag::kLinesTaken, ChannelCounter::kLinesReceived, number + 1);
}

template <class Type>
__device__ void reduce_slots(const Work& work, collective::Op op) {
  const Peers& peers = work.peers;
  const Tensor<typename Type::Storage> tensor(work.task.in, work.task.out,
                                              work.task.bytes / sizeof(typename Type::Storage), work.task.aligned);
  const auto is_peer = [&](std::uint32_t rank) { return rank < peers.layout.ranks && rank != peers.rank; };
  std::uint64_t received[kMaxRanks] = {};
#pragma unroll
  for (std::uint32_t peer = 0; peer < kMaxRanks; ++peer) {
    if (is_peer(peer)) received[peer] = Channel(peers, peer).counted(ChannelCounter::kReceived);
  }
  const std::uint32_t own = work.crew.index;
  const std::uint64_t own_received = is_peer(own) ? Channel(peers, own).counted(ChannelCounter::kReceived) : 0;
  work.crew.meet();
  const std::uint32_t pieces = work.pieces();
  for (std::uint32_t at = 0; at < pieces; ++at) {
    if (is_peer(own)) {
      work.await(Channel(peers, own), ChannelFlag::kArrived, own_received + at + 1, own);
    }
    work.crew.meet();
    if (work.shared.failed[work.number]) return;
    const Share piece = work.piece(at);
    for (std::size_t unit = work.crew.index; unit < piece.size; unit += work.crew.size) {
      tensor.store(piece.first + unit,
                   sum_of<Type>(peers, op, tensor.load(piece.first + unit), [&](std::uint32_t peer) {
                     return take_slot(Channel(peers, peer).own_slot(received[peer] + at), unit);
                   }));
    }
    work.crew.meet();
    tell_all(work, ChannelFlag::kTaken, ChannelCounter::kReceived, own_received + at + 1);
  }
}

template <class Type>
inline constexpr bool kReduces = !std::is_void_v<Type>;

/// Type: of the tensor that the one kReduce is for; void: there is none.
template <class Type>
__global__ void __launch_bounds__(kReduces<Type> ? kReduceScatterThreads : kExchangeThreads)
    exchange(const __grid_constant__ ExchangeJob job) {
  __shared__ Shared shared;
  const Peers& peers = job.peers;
  after_predecessor();
  const JournalStart journal = journal_start(peers);
  const bool failed = load_word(peers.own + peers.layout.error_at(peers.rank)) != 0;
  if (__syncthreads_or(failed)) return;  // all or none, or a crew would wait for who left
  open_journal(peers, journal);
  if (threadIdx.x < kMostTasks) {
    shared.failed[threadIdx.x] = false;
    shared.left[threadIdx.x] = 0;
  }
  __syncthreads();
  std::uint32_t number = 0;
  while (number < job.size && threadIdx.x >= job.tasks[number].first_thread + job.tasks[number].threads) ++number;
  if (number == job.size) return;
  const ExchangeTask& task = job.tasks[number];
  if (blockIdx.x >= task.lanes) return;
  const std::size_t units = (task.bytes + kUnitBytes - 1) / kUnitBytes;
  const Crew crew{threadIdx.x - task.first_thread, task.threads, number + 1};
  const Work work{peers, task, number, crew, shared, share_of_lane(units, (units + task.lanes - 1) / task.lanes)};
  const bool by_lines = task.piece_units == 0;
  switch (task.kind) {
    case TaskKind::kSend:
      by_lines ? send_lines(work) : send_slots(work);
      return;
    case TaskKind::kReceive:
      by_lines ? receive_lines(work) : receive_slots(work);
      break;
    case TaskKind::kCopy:
      copy(work);
      break;
    case TaskKind::kReduce:
      if constexpr (kReduces<Type>) by_lines ? reduce_lines<Type>(work, job.op) : reduce_slots<Type>(work, job.op);
      break;
  }
  if (crew.index == 0) note_end();
}

using Kernel = void (*)(ExchangeJob);
constexpr Kernel kReduceScatter[] = {&exchange<Float32>, &exchange<Float16>, &exchange<Bfloat16>, &exchange<Int32>};

int launch_kernel(Kernel kernel, const ExchangeJob& job, Grid grid, Stream stream) noexcept {
  ExchangeJob parameter = job;
  void* parameters[] = {&parameter};
  return launch(reinterpret_cast<const void*>(kernel), parameters, grid, stream);
}

}  // namespace

int launch_exchange(const ExchangeJob& job, Grid grid, Stream stream) noexcept {
  return launch_kernel(&exchange<void>, job, grid, stream);
}

int launch_reduce_scatter(const ExchangeJob& job, collective::DType dtype, Grid grid, Stream stream) noexcept {
  return launch_kernel(kReduceScatter[static_cast<std::size_t>(dtype) - 1], job, grid, stream);
}

int load_exchange_kernels() noexcept {
  cudaError_t error = load(reinterpret_cast<const void*>(&exchange<void>));
  for (const Kernel kernel : kReduceScatter) {
    if (error == cudaSuccess) error = load(reinterpret_cast<const void*>(kernel));
  }
  return error;
}

}  // namespace tensorwire::cuda
