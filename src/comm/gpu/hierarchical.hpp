// All-reduce where hosts have several GPUs each: reduce-scatter inside the host by kernels between its GPUs, all-reduce
// of the shards between ranks of the same local number by a proxy, all-gather inside the host. A large tensor goes in
// chunks: while the shard of one is between the hosts, the GPUs of each host work on the next. All on the caller's
// stream, by kernels of which none waits for what comes later, so it may be captured.
//
// Sums are made per host, in rank order and rounded to the type, then over the hosts, in the order of their first
// ranks: the same bits on all ranks, by whichever way a tensor is cut.
//
// One thread at a time, but for abort() and failure(). The Group must outlive it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "bootstrap/group.hpp"
#include "comm/communicator.hpp"
#include "comm/gpu/hosts.hpp"
#include "comm/gpu/proxied.hpp"
#include "cuda/communicator.hpp"

namespace tensorwire::comm {

class Hierarchical {
 public:
  /// A collective call. Null, on all ranks, where the ranks do not stand so on their hosts, or GPUs of one host do not
  /// reach each other; `why_not` says why. @throws Error when a rank fails meanwhile
  [[nodiscard]] static std::unique_ptr<Hierarchical> create(bootstrap::Group& group, int device,
                                                            const CommOptions& options, std::string& why_not);
  Hierarchical(const Hierarchical&) = delete;
  Hierarchical& operator=(const Hierarchical&) = delete;
  ~Hierarchical();

  /// All-reduces; but averages of integers are of exact sums, which hosts do not hand on.
  [[nodiscard]] static bool knows(const Call& call) noexcept;
  cuda::Status launch(const Call& call, cuda::Stream stream) noexcept;

  /// As the first rail between hosts counts: it takes part in every operation.
  [[nodiscard]] const Proxy& first_proxy() const noexcept { return outer_->first_proxy(); }
  [[nodiscard]] Carried carried() const noexcept { return outer_->carried(); }
  void abort(int peer) noexcept;
  [[nodiscard]] std::optional<CommError> failure() const;

 private:
  struct Chunk;

  Hierarchical(bootstrap::Group& group, Hosts hosts);
  void join_inside(int device, const CommOptions& options, std::uint32_t most_lanes);
  void join_between(int device, const CommOptions& options);

  [[nodiscard]] std::size_t chunk_of(std::size_t shard, std::size_t element) const noexcept;
  [[nodiscard]] std::vector<Chunk> chunks_of(const Call& call) const;
  cuda::Status launch_whole(const Call& call, cuda::Stream stream) noexcept;
  cuda::Status launch_chunks(const std::vector<Chunk>& chunks, cuda::Stream stream) noexcept;
  cuda::Status reduce_inside(const Chunk& chunk, cuda::Stream stream) noexcept;
  cuda::Status gather_inside(const Chunk& chunk, cuda::Stream stream) noexcept;
  cuda::Status end_chunk(const Chunk& chunk, cuda::Stream stream) noexcept;

  [[nodiscard]] std::optional<CommError> find_failure() const;
  /// The ranks of this host, and those of this rank's local number, as all ranks are numbered.
  [[nodiscard]] int rank_inside(int local) const;
  [[nodiscard]] int rank_between(int host) const;

  bootstrap::Group& group_;
  const Hosts hosts_;
  const Seat seat_;
  std::unique_ptr<cuda::Communicator> inner_;
  std::unique_ptr<bootstrap::Group> outer_group_;
  std::unique_ptr<Proxied> outer_;
  mutable std::mutex mutex_;  ///< guards what follows
  mutable std::optional<CommError> failure_;
};

}  // namespace tensorwire::comm
