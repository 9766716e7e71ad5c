// All that is made of messages: each collective becomes a list of tasks for one kernel (exchange.cu).
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "cuda/communicator_state.hpp"
#include "cuda/driver.cuh"
#include "cuda/range.hpp"

namespace tensorwire::cuda {

namespace {

constexpr std::uint32_t kThreadsOfWarp = 32;
/// More of a task's threads do not move it faster.
constexpr std::uint32_t kMostThreadsOfTask = 512;

/// The tasks of a kernel, as they come together.
class TaskList {
 public:
  TaskList(const Peers& peers, const Operation& operation) {
    job_.peers = peers;
    job_.peers.operation = operation;
  }

  /// All ranks make this operation, with the same arguments. What is only moved is bytes, whatever each rank calls
  /// them.
  void must_be_alike(std::uint64_t root = 0) noexcept {
    Operation asked = job_.peers.operation;
    if (asked.op == 0) asked.dtype = 0;
    job_.peers.operation.signature = signature_of(asked, root);
  }

  void send(int peer, const std::byte* in, std::size_t bytes) noexcept {
    if (bytes != 0) add(TaskKind::kSend, peer, in, nullptr, bytes);
  }
  void receive(int peer, std::byte* out, std::size_t bytes) noexcept {
    if (bytes != 0) add(TaskKind::kReceive, peer, nullptr, out, bytes);
  }
  void copy(const std::byte* in, std::byte* out, std::size_t bytes) noexcept {
    if (bytes != 0 && in != out) add(TaskKind::kCopy, rank(), in, out, bytes);
  }
  void reduce(const std::byte* in, std::byte* out, std::size_t bytes, collective::Op op) noexcept {
    job_.op = op;
    if (bytes != 0) add(TaskKind::kReduce, rank(), in, out, bytes);
  }
  /// What is received stays behind what is sent from the same place.
  void in_place() noexcept {
    for (std::uint8_t at = 0; at < job_.size; ++at) {
      if (job_.tasks[at].kind != TaskKind::kReceive) continue;
      for (std::uint8_t other = 0; other < job_.size; ++other) {
        if (job_.tasks[other].in == job_.tasks[at].out) job_.tasks[at].behind = other;
      }
    }
  }

  [[nodiscard]] bool is_empty() const noexcept { return job_.size == 0; }
  [[nodiscard]] const ExchangeJob& job() const noexcept { return job_; }

  /// Shares `most` threads of a block out: half of them to a reduction, if there is one.
  [[nodiscard]] Grid share_threads(std::uint32_t most) noexcept {
    const auto tasks = std::span(job_.tasks).first(job_.size);
    const bool reduces = std::ranges::find(tasks, TaskKind::kReduce, &ExchangeTask::kind) != tasks.end();
    const std::uint32_t others = std::max(1U, job_.size - (reduces ? 1U : 0U));
    const std::uint32_t each =
        std::max(kThreadsOfWarp, (reduces ? most / 2 : most) / others / kThreadsOfWarp * kThreadsOfWarp);
    Grid grid{1, 0};
    for (ExchangeTask& task : tasks) {
      const std::size_t lane_units =
          (task.bytes / kUnitBytes / task.lanes + kThreadsOfWarp) / kThreadsOfWarp * kThreadsOfWarp;
      const std::uint32_t share = task.kind == TaskKind::kReduce ? most / 2 : each;
      task.first_thread = static_cast<std::uint16_t>(grid.threads);
      task.threads = static_cast<std::uint16_t>(std::min<std::size_t>({lane_units, share, kMostThreadsOfTask}));
      grid.threads += task.threads;
      grid.lanes = std::max(grid.lanes, task.lanes);
    }
    return grid;
  }

 private:
  [[nodiscard]] int rank() const noexcept { return static_cast<int>(job_.peers.rank); }

  void add(TaskKind kind, int peer, const std::byte* in, std::byte* out, std::size_t bytes) noexcept {
    const MessageShape shape = choose_message_shape(bytes, job_.peers.layout);
    ExchangeTask& task = job_.tasks[job_.size++];
    task.kind = kind;
    task.peer = static_cast<std::uint8_t>(peer);
    task.in = in;
    task.out = out;
    task.bytes = bytes;
    task.lanes = shape.channels;
    task.piece_units = shape.piece_bytes / kUnitBytes;
    task.aligned = on_boundary(in, kUnitBytes) && on_boundary(out, kUnitBytes);
  }

  ExchangeJob job_;
};

const std::byte* bytes_at(const void* buffer, std::size_t offset) noexcept {
  return static_cast<const std::byte*>(buffer) + offset;
}
std::byte* bytes_at(void* buffer, std::size_t offset) noexcept { return static_cast<std::byte*>(buffer) + offset; }

/// The `round`th messages of this rank with each peer. False: there is none.
bool add_round(TaskList& tasks, std::span<const Message> messages, int rank, std::size_t round) noexcept {
  std::array<std::size_t, kMaxRanks> sends{}, receives{};
  const Message* to_self = nullptr;
  const Message* from_self = nullptr;
  bool found = false;
  for (const Message& message : messages) {
    const auto peer = static_cast<std::size_t>(message.peer);
    if ((message.sends ? sends : receives)[peer]++ != round) continue;
    found = true;
    if (message.peer == rank) {
      (message.sends ? to_self : from_self) = &message;
    } else if (message.sends) {
      tasks.send(message.peer, bytes_at(std::as_const(message.buffer), 0), message.bytes);
    } else {
      tasks.receive(message.peer, bytes_at(message.buffer, 0), message.bytes);
    }
  }
  if (to_self != nullptr && from_self != nullptr) {
    tasks.copy(bytes_at(std::as_const(to_self->buffer), 0), bytes_at(from_self->buffer, 0), from_self->bytes);
  }
  return found;
}

bool element_aligned(const void* in, const void* out, collective::DType dtype) noexcept {
  return collective::known(dtype) && on_boundary(in, collective::element_bytes(dtype)) &&
         on_boundary(out, collective::element_bytes(dtype));
}

/// @param reduced the type of the tensor that is reduced, if one is
Status launch(const CommunicatorState& state, TaskList& tasks, Stream stream,
              std::optional<collective::DType> reduced = std::nullopt) noexcept {
  if (state.failure_word() != 0) return Status::kFailed;
  if (tasks.is_empty()) return Status::kOk;
  Grid grid = tasks.share_threads(reduced ? kReduceScatterThreads : kExchangeThreads);
  grid.early = state.early;
  const Range range(tasks.job().peers.operation);
  const OnDevice current(state.device);
  const int error =
      reduced ? launch_reduce_scatter(tasks.job(), *reduced, grid, stream) : launch_exchange(tasks.job(), grid, stream);
  return error == cudaSuccess ? Status::kOk : Status::kNotLaunched;
}

}  // namespace

Status Communicator::all_gather(const void* in, void* out, std::size_t count, collective::DType dtype,
                                Stream stream) noexcept {
  if (!element_aligned(in, out, dtype)) return Status::kInvalid;
  const std::size_t bytes = count * collective::element_bytes(dtype);
  const std::size_t all_bytes = bytes * static_cast<std::size_t>(ranks());
  TaskList tasks(state_->peers, {OperationKind::kAllGather, static_cast<std::uint8_t>(dtype), all_bytes});
  tasks.must_be_alike();
  for (int step = 1; step < ranks(); ++step) {
    tasks.send((rank() + step) % ranks(), bytes_at(in, 0), bytes);
    const int peer = (rank() + ranks() - step) % ranks();
    tasks.receive(peer, bytes_at(out, static_cast<std::size_t>(peer) * bytes), bytes);
  }
  tasks.copy(bytes_at(in, 0), bytes_at(out, static_cast<std::size_t>(rank()) * bytes), bytes);
  return launch(*state_, tasks, stream);
}

Status Communicator::broadcast(const void* in, void* out, std::size_t count, collective::DType dtype, int root,
                               Stream stream) noexcept {
  if (root < 0 || root >= ranks()) return Status::kInvalid;
  if (!element_aligned(rank() == root ? in : nullptr, out, dtype)) return Status::kInvalid;
  const std::size_t bytes = count * collective::element_bytes(dtype);
  TaskList tasks(state_->peers, {OperationKind::kBroadcast, static_cast<std::uint8_t>(dtype), bytes});
  tasks.must_be_alike(static_cast<std::uint64_t>(root));
  if (rank() == root) {
    for (int step = 1; step < ranks(); ++step) tasks.send((root + step) % ranks(), bytes_at(in, 0), bytes);
    tasks.copy(bytes_at(in, 0), bytes_at(out, 0), bytes);
  } else {
    tasks.receive(root, bytes_at(out, 0), bytes);
  }
  return launch(*state_, tasks, stream);
}

Status Communicator::all_to_all(const void* in, void* out, std::size_t count, std::span<const std::uint64_t> counts,
                                collective::DType dtype, Stream stream) noexcept {
  if (!element_aligned(in, out, dtype)) return Status::kInvalid;
  const auto all = static_cast<std::size_t>(ranks());
  const auto me = static_cast<std::size_t>(rank());
  if (!counts.empty() && counts.size() != all * all) return Status::kInvalid;
  const std::size_t element = collective::element_bytes(dtype);
  const auto bytes_of = [&](std::size_t sender, std::size_t receiver) {
    return (counts.empty() ? count : counts[sender * all + receiver]) * element;
  };
  std::size_t all_bytes = 0;
  for (std::size_t peer = 0; peer < all; ++peer) all_bytes += bytes_of(me, peer);
  TaskList tasks(state_->peers, {OperationKind::kAllToAll, static_cast<std::uint8_t>(dtype), all_bytes});
  if (counts.empty()) tasks.must_be_alike();
  std::size_t in_at = 0, out_at = 0;
  for (std::size_t peer = 0; peer < all; ++peer) {
    const std::size_t sent = bytes_of(me, peer), received = bytes_of(peer, me);
    if (peer == me) {
      tasks.copy(bytes_at(in, in_at), bytes_at(out, out_at), sent);
    } else {
      tasks.send(static_cast<int>(peer), bytes_at(in, in_at), sent);
      tasks.receive(static_cast<int>(peer), bytes_at(out, out_at), received);
    }
    in_at += sent;
    out_at += received;
  }
  if (in == out) tasks.in_place();
  return launch(*state_, tasks, stream);
}

Status Communicator::reduce_scatter(const void* in, void* out, std::size_t count, collective::DType dtype,
                                    collective::Op op, Stream stream) noexcept {
  if (!element_aligned(in, out, dtype) || !collective::known(op)) return Status::kInvalid;
  const std::size_t bytes = count * collective::element_bytes(dtype);
  const std::size_t all_bytes = bytes * static_cast<std::size_t>(ranks());
  TaskList tasks(state_->peers, {OperationKind::kReduceScatter, static_cast<std::uint8_t>(dtype), all_bytes,
                                 static_cast<std::uint8_t>(op)});
  tasks.must_be_alike();
  for (int step = 1; step < ranks(); ++step) {
    const int peer = (rank() + step) % ranks();
    tasks.send(peer, bytes_at(in, static_cast<std::size_t>(peer) * bytes), bytes);
  }
  tasks.reduce(bytes_at(in, static_cast<std::size_t>(rank()) * bytes), bytes_at(out, 0), bytes, op);
  return launch(*state_, tasks, stream, dtype);
}

Status Communicator::exchange(std::span<const Message> messages, Stream stream) noexcept {
  std::size_t all_bytes = 0;
  for (const Message& message : messages) {
    if (message.peer < 0 || message.peer >= ranks() || message.bytes % 2 != 0) return Status::kInvalid;
    if (!on_boundary(message.buffer, 2)) return Status::kInvalid;
    all_bytes += message.bytes;
  }
  for (std::size_t round = 0;; ++round) {
    TaskList tasks(state_->peers, {OperationKind::kMessages, 0, all_bytes});
    if (!add_round(tasks, messages, rank(), round)) return failure() ? Status::kFailed : Status::kOk;
    const Status status = launch(*state_, tasks, stream);
    if (status != Status::kOk) return status;
  }
}

}  // namespace tensorwire::cuda
