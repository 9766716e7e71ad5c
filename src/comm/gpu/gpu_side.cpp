#include "comm/gpu/gpu_side.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/gpu/agreement.hpp"
#include "comm/gpu/bound.hpp"
#include "comm/gpu/hierarchical.hpp"
#include "comm/gpu/lone_norm.hpp"
#include "comm/gpu/proxied.hpp"

namespace tensorwire::comm {

namespace {

/// How soon waiting kernels hear of a rank that died, and of an abort that a signal handler asked for.
constexpr std::chrono::milliseconds kWatchEvery{5};

void check_gpu(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw Error{what, cudaGetErrorString(error), "Is there such a GPU, and a driver as new as this build?"};
}

/// Pinned host memory. Owns it.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  ~PinnedMemory() { cudaFreeHost(data_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  /// What was in it may be lost. @throws Error
  [[nodiscard]] std::byte* of(std::size_t bytes) {
    if (bytes <= bytes_) return data_;
    cudaFreeHost(std::exchange(data_, nullptr));
    bytes_ = 0;
    void* memory = nullptr;
    check_gpu(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "allocate pinned memory");
    data_ = static_cast<std::byte*>(memory);
    bytes_ = bytes;
    return data_;
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

CommErrorKind kind_of(const cuda::Failure& failure, int rank) noexcept {
  if (failure.kind == cuda::FailureKind::kTimeout) return CommErrorKind::kTimeout;
  if (failure.kind == cuda::FailureKind::kDisagreement) return CommErrorKind::kDisagreement;
  return failure.peer == rank && failure.reporter == rank ? CommErrorKind::kAborted : CommErrorKind::kPeerFailed;
}

class CudaSide final : public GpuSide {
 public:
  CudaSide(bootstrap::Group& group, int device, const CommOptions& options)
      : group_(group),
        device_(device),
        abort_flag_(options.abort_flag),
        path_(agree_on_path(group, true)),
        communicator_(join(group, device, options)),
        hierarchical_(join_hosts(group, device, options)),
        lone_norm_(is_carried() ? std::make_unique<LoneNorm>(device) : nullptr),
        proxied_(is_carried() ? std::make_unique<Proxied>(group, device, options) : nullptr),
        watcher_([this] { watch(); }) {}
  ~CudaSide() override {
    {
      const std::scoped_lock lock{mutex_};
      stopping_ = true;
    }
    wake_.notify_all();
    watcher_.join();
  }
  CudaSide(const CudaSide&) = delete;
  CudaSide& operator=(const CudaSide&) = delete;

  [[nodiscard]] int device() const noexcept override { return device_; }
  [[nodiscard]] const char* path() const noexcept override {
    if (communicator_ != nullptr) return home_ == cuda::Home::kGpu ? "peer" : "shared";
    return hierarchical_ != nullptr ? "hierarchical" : proxied_ != nullptr ? "proxy" : "host";
  }
  [[nodiscard]] bool launches(const Call& call) const noexcept override {
    return communicator_ != nullptr || (proxied_ != nullptr && Proxied::knows(call));
  }
  [[nodiscard]] bool launches_messages() const noexcept override { return communicator_ != nullptr; }
  [[nodiscard]] bool launches(const cuda::AddNorm& what) const noexcept override {
    return communicator_ != nullptr || (proxied_ != nullptr && LoneNorm::knows(what));
  }

  cuda::Status launch(const Call& call, void* stream) noexcept override {
    auto* const on = static_cast<cuda::Stream>(stream);
    if (communicator_ != nullptr) return noted(start(call, on));
    return noted(hierarchical_ != nullptr && Hierarchical::knows(call) ? hierarchical_->launch(call, on)
                                                                       : proxied_->launch(call, on));
  }
  cuda::Status launch(std::span<const Transfer> transfers, void* stream) noexcept override {
    messages_.clear();
    for (const Transfer& transfer : transfers) {
      messages_.push_back(
          {transfer.sends, transfer.peer, transfer.buffer, transfer.count * element_bytes(transfer.dtype)});
    }
    return noted(communicator_->exchange(messages_, static_cast<cuda::Stream>(stream)));
  }
  cuda::Status launch(const cuda::AddNorm& what, collective::DType dtype, void* stream) noexcept override {
    auto* const on = static_cast<cuda::Stream>(stream);
    if (communicator_ != nullptr) return noted(communicator_->all_reduce_add_norm(what, dtype, on));
    Call sum;
    sum.in = what.in;
    sum.out = what.norm_out;
    sum.count = what.rows * what.hidden;
    sum.dtype = dtype;
    const cuda::Status summed = launch(sum, stream);
    return summed == cuda::Status::kOk ? noted(lone_norm_->launch(what, dtype, on)) : summed;
  }
  [[nodiscard]] std::string launch_error() const override { return cudaGetErrorString(launch_error_); }

  [[nodiscard]] HostMemory host_memory(std::size_t in_bytes, std::size_t out_bytes) override {
    return {host_in_.of(in_bytes), host_out_.of(out_bytes)};
  }
  void copy(void* to, const void* from, std::size_t bytes, void* stream) override {
    const auto on = static_cast<cudaStream_t>(stream);
    if (bytes != 0) check_gpu(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on), "copy between GPU and host");
    check_gpu(cudaStreamSynchronize(on), "wait for a stream");
  }

  [[nodiscard]] cuda::Communicator::Journal journal() const override {
    if (communicator_ != nullptr) return communicator_->journal();
    cuda::Communicator::Journal journal;
    const auto add = [&](const Proxy& proxy) {
      journal.operations += proxy.operations();
      journal.bytes += proxy.bytes();
    };
    if (proxied_ != nullptr) add(proxied_->first_proxy());
    if (hierarchical_ != nullptr) add(hierarchical_->first_proxy());
    return journal;
  }
  [[nodiscard]] Carried carried() const noexcept override {
    Carried all;
    if (proxied_ != nullptr) all += proxied_->carried();
    if (hierarchical_ != nullptr) all += hierarchical_->carried();
    return all;
  }
  void abort(int peer) noexcept override {
    if (communicator_ != nullptr) communicator_->abort(peer);
    if (hierarchical_ != nullptr) hierarchical_->abort(peer);
    if (proxied_ != nullptr) proxied_->abort(peer);
  }
  [[nodiscard]] std::optional<CommError> failure() const override {
    const auto between = hierarchical_ != nullptr ? hierarchical_->failure() : std::nullopt;
    if (between) return between;
    if (proxied_ != nullptr) return proxied_->failure();
    const auto failed = communicator_ != nullptr ? communicator_->failure() : std::nullopt;
    if (!failed) return std::nullopt;
    return CommError{kind_of(*failed, communicator_->rank()), failed->peer, communicator_->failure_text()};
  }

 private:
  /// Null where the ranks share no memory that their GPUs reach, or shall not: on all ranks.
  std::unique_ptr<cuda::Communicator> join(bootstrap::Group& group, int device, const CommOptions& options) {
    if (path_ == GpuPath::kHost)
      log_warn("operations on GPU memory are copied by each call: TENSORWIRE_PATH asks for it");
    std::string why_not;
    for (const auto& [home, only] :
         {std::pair{cuda::Home::kGpu, GpuPath::kPeer}, std::pair{cuda::Home::kHost, GpuPath::kShared}}) {
      if (path_ != GpuPath::kAuto && path_ != only) continue;
      home_ = home;
      try {
        auto made = std::make_unique<cuda::Communicator>(options_of(group, device, options));
        if (!why_not.empty())
          log_warn(fmt::format("operations on GPU memory go through memory of the host, across PCIe: {}", why_not));
        return made;
      } catch (const Error& error) {
        if (path_ == only) throw;
        group.throw_if_failed("join the GPUs");
        cudaDeviceProp properties{};
        check_gpu(cudaGetDeviceProperties(&properties, device), "use a GPU");
        why_not = error.what();
      }
    }
    return nullptr;
  }
  /// Null where ranks are not several on each of several hosts, or another path is asked for: on all ranks.
  std::unique_ptr<Hierarchical> join_hosts(bootstrap::Group& group, int device, const CommOptions& options) {
    if (communicator_ != nullptr || path_ > GpuPath::kHierarchical) return nullptr;
    std::string why_not;
    auto made = Hierarchical::create(group, device, options, why_not);
    if (made != nullptr) return made;
    if (path_ == GpuPath::kHierarchical) throw Error{"join the GPUs of each host", why_not, "Unset TENSORWIRE_PATH"};
    log_warn(fmt::format("operations on GPU memory go through pinned host memory and the HCA: {}", why_not));
    return nullptr;
  }
  [[nodiscard]] bool is_carried() const noexcept { return communicator_ == nullptr && path_ != GpuPath::kHost; }
  cuda::CommunicatorOptions options_of(bootstrap::Group& group, int device, const CommOptions& options) const {
    cuda::CommunicatorOptions made;
    made.rank = group.rank();
    made.ranks = group.world_size();
    made.device = device;
    made.exchange = [&group](std::span<const std::byte> mine) { return group.all_gather(mine); };
    made.operation_bound = bound_on_gpu(options);
    made.scratch = home_;
    return made;
  }

  cuda::Status start(const Call& call, cuda::Stream stream) noexcept {
    using collective::Collective;
    cuda::Communicator& communicator = *communicator_;
    switch (call.collective) {
      case Collective::kAllReduce:
        return communicator.all_reduce(call.in, call.out, call.count, call.dtype, call.op, stream);
      case Collective::kReduceScatter:
        return communicator.reduce_scatter(call.in, call.out, call.count, call.dtype, call.op, stream);
      case Collective::kAllGather:
        return communicator.all_gather(call.in, call.out, call.count, call.dtype, stream);
      case Collective::kBroadcast:
        return communicator.broadcast(call.in, call.out, call.count, call.dtype, call.root, stream);
      case Collective::kAllToAll:
        return communicator.all_to_all(call.in, call.out, call.count, call.counts, call.dtype, stream);
      case Collective::kBarrier:
        return communicator.barrier(stream);
      case Collective::kSendRecv:
        break;
    }
    return cuda::Status::kInvalid;
  }

  cuda::Status noted(cuda::Status status) noexcept {
    if (status == cuda::Status::kNotLaunched) launch_error_ = cudaGetLastError();
    return status;
  }

  /// While graphs replay, no code of this library runs in the application's threads.
  void watch() {
    std::unique_lock lock{mutex_};
    while (!wake_.wait_for(lock, kWatchEvery, [this] { return stopping_; })) {
      if (abort_flag_ != nullptr && abort_flag_->load(std::memory_order_relaxed)) abort(group_.rank());
      if (!group_.failed()) {
        if (hierarchical_ != nullptr) tell(hierarchical_->failure());
        continue;
      }
      const auto failed = group_.failed_rank();
      abort(failed ? failed->rank : group_.rank());
    }
  }

  /// Those who do not meet the rank that failed, or whom it failed for, hear of it by the group.
  void tell(const std::optional<CommError>& failure) {
    if (!failure) return;
    if (failure->peer < 0 || failure->peer == group_.rank()) return group_.abort(failure->line);
    group_.accuse(failure->peer, bootstrap::FailureKind::kSilent, failure->line);
  }

  bootstrap::Group& group_;
  int device_;
  const std::atomic<bool>* abort_flag_;
  const GpuPath path_;
  cuda::Home home_ = cuda::Home::kGpu;  ///< where the scratch of communicator_ is
  std::unique_ptr<cuda::Communicator> communicator_;
  std::unique_ptr<Hierarchical> hierarchical_;
  std::unique_ptr<LoneNorm> lone_norm_;
  std::unique_ptr<Proxied> proxied_;  ///< when it is made all ranks have allocated what they need
  PinnedMemory host_in_, host_out_;
  std::vector<cuda::Message> messages_;
  cudaError_t launch_error_ = cudaSuccess;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread watcher_;  ///< last: it uses all the others
};

}  // namespace

std::unique_ptr<GpuSide> GpuSide::create(bootstrap::Group& group, int device, const CommOptions& options) {
  return std::make_unique<CudaSide>(group, device, options);
}

int GpuSide::current_device() {
  int device = 0;
  check_gpu(cudaGetDevice(&device), "use memory of a GPU");
  return device;
}

bool GpuSide::is_capturing(void* stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status);
  if (error == cudaSuccess) return status != cudaStreamCaptureStatusNone;
  static_cast<void>(cudaGetLastError());  // not to be found by the application's next question
  return error == cudaErrorStreamCaptureImplicit;
}

}  // namespace tensorwire::comm
