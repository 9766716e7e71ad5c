#include "comm/c_api_handle.hpp"

#include <sched.h>

#include <exception>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "comm/observe/gpu_watcher.hpp"

using namespace tensorwire;

namespace {

constexpr Ps kAbortBound = 10 * kSecond;
constexpr const char* kAbortReason = "twCommAbort was called";

twResult_t to_result(comm::CommErrorKind kind) noexcept {
  switch (kind) {
    case comm::CommErrorKind::kArgument:
      return twInvalidArgument;
    case comm::CommErrorKind::kPeerFailed:
      return twRemoteError;
    case comm::CommErrorKind::kDisagreement:
      return twDisagreement;
    case comm::CommErrorKind::kTimeout:
      return twTimeout;
    case comm::CommErrorKind::kAborted:
      return twAborted;
    case comm::CommErrorKind::kTransport:
      return twSystemError;
    case comm::CommErrorKind::kInternal:
      break;
  }
  return twInternalError;
}

}  // namespace

twComm::twComm(bootstrap::GroupOptions group_options, comm::CommOptions options, std::function<void()> when_met)
    : group_options_(std::move(group_options)), options_(std::move(options)), when_met_(std::move(when_met)) {
  options_.abort_flag = &abort_requested_;
}

twComm::~twComm() { static_cast<void>(wait_for_set_up()); }

twResult_t twComm::set_up() noexcept try {
  std::unique_ptr<bootstrap::Group> group;
  try {
    group = bootstrap::Group::join(group_options_);
  } catch (const Error& error) {
    return end_with(twRemoteError, error.what());
  }
  group_options_.listener.reset();
  if (when_met_) std::exchange(when_met_, {})();
  // An abort that came meanwhile, or an exception, is told to the others by the group's end.
  if (abort_requested_) throw Error{"create a communicator", kAbortReason};
  auto communicator = comm::Communicator::create(*group, options_);
  const std::scoped_lock lock{mutex_};
  group_ = std::move(group);
  communicator_ = std::move(communicator);
  meeting_places_ = communicator_->meeting_places();
  state_.store(twSuccess, std::memory_order_release);
  return twSuccess;
} catch (const Error& error) {
  return end_with(abort_requested_ ? twAborted : twSystemError, error.what());
} catch (const std::exception& error) {
  return end_with(twInternalError, error.what());
}

void twComm::set_up_in_thread() {
  set_up_thread_ = std::thread{[this] { static_cast<void>(set_up()); }};
}

twResult_t twComm::wait_for_set_up() noexcept {
  if (set_up_thread_.joinable()) set_up_thread_.join();
  return state();
}

twResult_t twComm::result_of(bool done) noexcept {
  if (done) return twSuccess;
  const comm::CommError* error = communicator_->error();
  if (error == nullptr) return end_with(twInternalError, "an operation failed without a reason");
  const twResult_t result = to_result(error->kind);
  return result == twInvalidArgument ? refuse(result, error->line) : end_with(result, error->line);
}

twResult_t twComm::set_up_gpu(int device) noexcept try {
  if (gpu_ != nullptr) return twSuccess;
  auto made = comm::GpuSide::create(*group_, device, options_);
  const std::scoped_lock lock{mutex_};
  gpu_ = std::move(made);
  communicator_->watch_gpu(
      {[gpu = gpu_.get()] { return gpu->journal(); },
       [gpu = gpu_.get(), ranks = ranks()]() -> std::optional<comm::FailureNote> {
         const auto failure = gpu->failure();
         if (!failure) return std::nullopt;
         return comm::FailureNote{failure->line, failure->peer, static_cast<std::uint32_t>(ranks), "nothing"};
       }});
  return twSuccess;
} catch (const Error& error) {
  return refuse(twSystemError, error.what());
} catch (const std::exception& error) {
  return end_with(twInternalError, error.what());
}

twResult_t twComm::result_of(const char* call, cuda::Status status) noexcept {
  switch (status) {
    case cuda::Status::kOk:
      return twSuccess;
    case cuda::Status::kInvalid:
      return refuse(
          twInvalidArgument,
          std::string{call} + ": a tensor of the GPU is not aligned as it must be, or of a size that does not fit");
    case cuda::Status::kNotLaunched:
      return end_with(twSystemError, std::string{call} + ": CUDA refused the launch: " + gpu_->launch_error());
    case cuda::Status::kFailed:
      break;
  }
  const auto failure = gpu_->failure();
  return failure ? end_with(to_result(failure->kind), failure->line)
                 : end_with(twInternalError, std::string{call} + ": failed without a reason");
}

twResult_t twComm::ready(const char* call, const HandleInUse& mine) noexcept {
  const auto refuse_usage = [&](const char* why) { return refuse(twInvalidUsage, std::string{call} + ": " + why); };
  // The thread that aborts has it just now.
  if (!mine && abort_requested_.load(std::memory_order_relaxed)) return refuse(twAborted, kAbortReason);
  if (!mine) return refuse_usage("another thread is using this communicator");
  const twResult_t now = state();
  if (now == twInProgress) return refuse_usage("the communicator is still being set up");
  if (now != twSuccess) return now;
  return communicator_ == nullptr ? refuse_usage("the communicator was finalized") : twSuccess;
}

twResult_t twComm::refuse(twResult_t result, std::string line) noexcept {
  set_line(std::move(line));
  return result;
}

twResult_t twComm::state_seen_from_outside() const noexcept {
  const twResult_t now = state();
  if (now != twSuccess) return now;
  const std::scoped_lock lock{mutex_};
  // The GPU's own failure says more than that the group is broken: the group may be so because of it.
  if (const auto of_gpu = gpu_ != nullptr ? gpu_->failure() : std::nullopt) return to_result(of_gpu->kind);
  const auto failed = group_ != nullptr ? group_->failed_rank() : std::nullopt;
  if (!failed) return now;
  return failed->kind == bootstrap::FailureKind::kDisagrees ? twDisagreement : twRemoteError;
}

twResult_t twComm::end_with(twResult_t result, std::string line) noexcept {
  const twResult_t before = state();
  if (before != twSuccess && before != twInProgress) return before;
  set_line(std::move(line));
  state_.store(result, std::memory_order_release);
  return result;
}

void twComm::set_line(std::string line) noexcept {
  const std::scoped_lock lock{mutex_};
  line_ = std::move(line);
}

std::string twComm::last_line() const {
  const std::scoped_lock lock{mutex_};
  const auto of_gpu = gpu_ != nullptr && state() == twSuccess ? gpu_->failure() : std::nullopt;
  return of_gpu ? of_gpu->line : line_;
}

void twComm::close() noexcept {
  static_cast<void>(wait_for_set_up());
  give_back();
  const std::scoped_lock lock{mutex_};
  meeting_places_.reset();
}

std::shared_ptr<const bootstrap::MeetingPlaces> twComm::meeting_places() const noexcept {
  const std::scoped_lock lock{mutex_};
  return meeting_places_;
}

void twComm::leave_behind(std::span<const int> excluded, const std::string& reason) noexcept {
  {
    const std::scoped_lock lock{mutex_};
    if (communicator_ == nullptr) return;
    if (!excluded.empty()) group_->accuse(excluded.front(), bootstrap::FailureKind::kExcluded, reason);
    communicator_->retire(reason);
  }
  static_cast<void>(end_with(twAborted, reason));
}

/// The farewell to the peers takes place outside of the lock, which questions from other threads need.
void twComm::give_back() noexcept {
  std::unique_ptr<comm::Communicator> communicator;
  std::unique_ptr<bootstrap::Group> group;
  std::unique_ptr<comm::GpuSide> gpu;
  {
    const std::scoped_lock lock{mutex_};
    gpu = std::move(gpu_);
    communicator = std::move(communicator_);
    group = std::move(group_);
  }
  if (gpu != nullptr && communicator != nullptr) communicator->leave_gpu();
  gpu.reset();
  communicator.reset();
}

void twComm::interrupt(const std::string& reason) noexcept {
  const std::scoped_lock lock{mutex_};
  if (gpu_ != nullptr) gpu_->abort(rank());
  if (communicator_ != nullptr) communicator_->abort(reason);
}

void twComm::abort() noexcept {
  // The reason first: an operation that saw the mere request would give the peers one that says less.
  interrupt(kAbortReason);
  request_abort();
  for (const Ps until = monotonic_now() + kAbortBound; monotonic_now() < until;) {
    if (const HandleInUse mine{*this}; mine) {
      static_cast<void>(wait_for_set_up());
      static_cast<void>(end_with(twAborted, kAbortReason));
      give_back();
      return;
    }
    sched_yield();
  }
}
