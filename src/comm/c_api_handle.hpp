// What a twComm_t points to: a group, a communicator over it, and what callers of the C API may ask of both from any
// thread. The handle lives until twCommDestroy; what it holds may go earlier (twCommFinalize, twCommAbort).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "bootstrap/group.hpp"
#include "bootstrap/meeting_places.hpp"
#include "comm/communicator.hpp"
#include "comm/gpu/gpu_side.hpp"
#include "tensorwire/tensorwire.h"

class HandleInUse;

struct twComm {
 public:
  /// Joins by `group_options`, in a thread of its own or before it returns.
  /// @param when_met called once all ranks have come, before the communicator is made; empty: nothing
  twComm(tensorwire::bootstrap::GroupOptions group_options, tensorwire::comm::CommOptions options,
         std::function<void()> when_met = {});
  ~twComm();
  twComm(const twComm&) = delete;
  twComm& operator=(const twComm&) = delete;

  /// Joins and connects; the result is the state afterwards.
  twResult_t set_up() noexcept;
  void set_up_in_thread();
  /// Waits for that thread, and returns the state afterwards.
  twResult_t wait_for_set_up() noexcept;

  [[nodiscard]] twResult_t state() const noexcept { return state_.load(std::memory_order_acquire); }
  /// The same, and what other ranks' ends will make of it.
  [[nodiscard]] twResult_t state_seen_from_outside() const noexcept;
  [[nodiscard]] int rank() const noexcept { return group_options_.rank; }
  [[nodiscard]] int ranks() const noexcept { return group_options_.world_size; }

  /// Whether operations may run now; `call` goes into the line if not.
  twResult_t ready(const char* call, const HandleInUse& mine) noexcept;
  [[nodiscard]] const tensorwire::comm::CommOptions& options() const noexcept { return options_; }
  /// While it is ready().
  [[nodiscard]] tensorwire::bootstrap::Group& group() noexcept { return *group_; }
  /// Null once closed.
  [[nodiscard]] tensorwire::comm::Communicator* communicator() noexcept { return communicator_.get(); }
  /// Joins the GPUs of all ranks: a collective call, where it was not made before. Needs the handle in use.
  twResult_t set_up_gpu(int device) noexcept;
  /// Null before.
  [[nodiscard]] tensorwire::comm::GpuSide* gpu() noexcept { return gpu_.get(); }
  /// The result of a launch; `call` goes into the line.
  twResult_t result_of(const char* call, tensorwire::cuda::Status status) noexcept;
  /// Takes over what the communicator says of its last call, and returns it as a result.
  twResult_t result_of(bool done) noexcept;
  /// Of an error that is final. The first one stays, and is the result.
  twResult_t end_with(twResult_t result, std::string line) noexcept;
  /// Of a call that may not be made: the state stays.
  twResult_t refuse(twResult_t result, std::string line) noexcept;

  /// Where its ranks meet to go on without some; also after an error or an abort. Null when it is finalized or alone.
  [[nodiscard]] std::shared_ptr<const tensorwire::bootstrap::MeetingPlaces> meeting_places() const noexcept;
  /// Others go on in another communicator: this one is over, and its `excluded` ranks hear why. Needs the handle in
  /// use.
  void leave_behind(std::span<const int> excluded, const std::string& reason) noexcept;

  /// Awaits the peers, and gives everything back. Needs the handle in use.
  void close() noexcept;
  void abort() noexcept;
  /// What is under way, here and on all other ranks, fails with this reason.
  void interrupt(const std::string& reason) noexcept;
  void request_abort() noexcept { abort_requested_.store(true, std::memory_order_relaxed); }

  [[nodiscard]] std::string last_line() const;

 private:
  friend class HandleInUse;

  void set_line(std::string line) noexcept;
  void give_back() noexcept;

  tensorwire::bootstrap::GroupOptions group_options_;
  tensorwire::comm::CommOptions options_;
  std::function<void()> when_met_;
  std::atomic<twResult_t> state_{twInProgress};
  std::atomic<bool> in_use_{false};
  std::atomic<bool> abort_requested_{false};
  std::thread set_up_thread_;
  mutable std::mutex mutex_;  ///< guards the line, and the pointers below while they are set or reset
  std::string line_;
  std::unique_ptr<tensorwire::bootstrap::Group> group_;
  std::unique_ptr<tensorwire::comm::Communicator> communicator_;
  std::unique_ptr<tensorwire::comm::GpuSide> gpu_;  ///< after the first call with memory of a GPU
  std::shared_ptr<const tensorwire::bootstrap::MeetingPlaces> meeting_places_;
};

/// The right to use a handle's communicator: one thread at a time has it.
class HandleInUse {
 public:
  explicit HandleInUse(twComm& handle) noexcept
      : handle_(handle.in_use_.exchange(true, std::memory_order_acquire) ? nullptr : &handle) {}
  ~HandleInUse() {
    if (handle_ != nullptr) handle_->in_use_.store(false, std::memory_order_release);
  }
  HandleInUse(const HandleInUse&) = delete;
  HandleInUse& operator=(const HandleInUse&) = delete;
  [[nodiscard]] explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  twComm* handle_;
};
