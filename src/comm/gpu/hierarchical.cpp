#include "comm/gpu/hierarchical.hpp"

#include <algorithm>
#include <vector>

namespace tensorwire::comm {

using collective::DType;
using collective::Op;

namespace {

/// Up to here every rank has the host's sum and takes all of it to the other hosts: more bytes there, but one kernel
/// and one meeting of the host's ranks less.
constexpr std::size_t kMostWholeBytes = std::size_t{32} << 10;
/// A shard in about so many chunks, of not less than so many bytes: the more, the more of NVLink's time is behind that
/// of the network; but each takes four kernels.
constexpr std::size_t kChunks = 8;
constexpr std::size_t kLeastChunkBytes = std::size_t{512} << 10;
constexpr std::size_t kUnit = 16;

/// What a host's ranks do for `op` of all: who sums between the hosts divides.
Op inside(Op op) noexcept { return op == Op::kMax ? Op::kMax : Op::kSum; }

}  // namespace

/// A part of the tensor, and what of it this rank takes between the hosts: a shard, or all of it.
struct Hierarchical::Chunk {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  bool is_whole = false;
  cuda::RelayShard shard;
};

bool Hierarchical::knows(const Call& call) noexcept {
  return call.collective == collective::Collective::kAllReduce &&
         !(call.dtype == DType::kInt32 && call.op == Op::kAverage);
}

cuda::Status Hierarchical::launch(const Call& call, cuda::Stream stream) noexcept try {
  if (!collective::known(call.dtype) || !collective::known(call.op)) return cuda::Status::kInvalid;
  if (call.count == 0) return cuda::Status::kOk;
  if (call.count * element_bytes(call.dtype) <= kMostWholeBytes) return launch_whole(call, stream);
  return launch_chunks(chunks_of(call), stream);
} catch (const std::bad_alloc&) {
  return cuda::Status::kInvalid;
}

cuda::Status Hierarchical::launch_whole(const Call& call, cuda::Stream stream) noexcept {
  const cuda::Status summed = inner_->all_reduce(call.in, call.out, call.count, call.dtype, inside(call.op), stream);
  if (summed != cuda::Status::kOk) return summed;
  return outer_->relay().all_reduce(call.out, call.out, call.count, call.dtype, call.op, stream);
}

/// Elements of each rank's shard that go together.
std::size_t Hierarchical::chunk_of(std::size_t shard, std::size_t element) const noexcept {
  const std::size_t most = outer_->relay().most_shard_bytes();
  const std::size_t bytes = std::min(std::max(shard * element / kChunks, kLeastChunkBytes), most);
  return std::max<std::size_t>(bytes / kUnit * kUnit / element, kUnit / element);
}

/// Shards are whole units; what is left over at the end, less than two units for each rank, is taken by all.
std::vector<Hierarchical::Chunk> Hierarchical::chunks_of(const Call& call) const {
  const std::size_t element = element_bytes(call.dtype);
  const std::size_t locals = hosts_.front().size();
  const std::size_t shard = call.count / locals * element / kUnit * kUnit / element;
  const std::size_t most = chunk_of(shard, element);
  const auto* in = static_cast<const std::byte*>(call.in);
  auto* out = static_cast<std::byte*>(call.out);
  std::vector<Chunk> chunks;
  const auto add = [&](std::size_t at, std::size_t count, std::size_t own, bool is_whole) {
    std::byte* const to = out + at * element;
    const auto place = static_cast<std::uint32_t>(chunks.size() % 2);
    const cuda::RelayShard mine{to + own * element, to + own * element,  count, place, call.dtype, call.op,
                                chunks.empty(),     call.count * element};
    chunks.push_back({in + at * element, to, is_whole, mine});
  };
  for (std::size_t at = 0; at < shard; at += most) {
    const std::size_t count = std::min(most, shard - at);
    add(at * locals, count, count * seat_.local, false);
  }
  if (const std::size_t rest = call.count - shard * locals; rest != 0) add(shard * locals, rest, 0, true);
  return chunks;
}

cuda::Status Hierarchical::reduce_inside(const Chunk& chunk, cuda::Stream stream) noexcept {
  const cuda::RelayShard& of = chunk.shard;
  if (chunk.is_whole) return inner_->all_reduce(chunk.in, chunk.out, of.count, of.dtype, inside(of.op), stream);
  return inner_->reduce_scatter(chunk.in, of.out, of.count, of.dtype, inside(of.op), stream);
}

cuda::Status Hierarchical::gather_inside(const Chunk& chunk, cuda::Stream stream) noexcept {
  if (chunk.is_whole) return cuda::Status::kOk;
  return inner_->all_gather(chunk.shard.out, chunk.out, chunk.shard.count, chunk.shard.dtype, stream);
}

cuda::Status Hierarchical::end_chunk(const Chunk& chunk, cuda::Stream stream) noexcept {
  const cuda::Status collected = outer_->relay().collect(chunk.shard, stream);
  return collected == cuda::Status::kOk ? gather_inside(chunk, stream) : collected;
}

/// A chunk's shard is between the hosts while the next chunk is reduced inside, and while the one before is gathered.
cuda::Status Hierarchical::launch_chunks(const std::vector<Chunk>& chunks, cuda::Stream stream) noexcept {
  cuda::Relay& relay = outer_->relay();
  cuda::Status status = cuda::Status::kOk;
  const auto go_on = [&](cuda::Status step) { return (status = step) == cuda::Status::kOk; };
  const Chunk* before = nullptr;
  for (const Chunk& chunk : chunks) {
    if (!go_on(reduce_inside(chunk, stream))) return status;
    if (before != nullptr && !go_on(relay.turn(before->shard, stream))) return status;
    if (!go_on(relay.post(chunk.shard, stream))) return status;
    if (before != nullptr && !go_on(end_chunk(*before, stream))) return status;
    before = &chunk;
  }
  if (!go_on(relay.turn(before->shard, stream))) return status;
  return end_chunk(*before, stream);
}

}  // namespace tensorwire::comm
