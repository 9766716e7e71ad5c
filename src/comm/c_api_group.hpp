// Group calls: what one thread asks of one or several communicators between twGroupStart and twGroupEnd, run together
// at the end. Each thread has its own.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/c_api_gpu.hpp"
#include "comm/c_api_handle.hpp"

class ThreadGroup {
 public:
  [[nodiscard]] bool is_open() const noexcept { return depth_ != 0; }
  void start() noexcept { ++depth_; }
  /// Runs everything when the outermost group ends: for each communicator its collectives in the order of the calls,
  /// then all its messages together (those of GPUs first, by stream). Returns the first error; the rest of that
  /// communicator's operations is dropped then.
  twResult_t end();

  /// @param call its counts are copied
  void add(twComm& handle, const tensorwire::comm::Call& call);
  void add(twComm& handle, const tensorwire::comm::Transfer& transfer);
  /// On memory of a GPU.
  void add(const GpuCall& call, const tensorwire::comm::Transfer& transfer);
  /// *handle is being set up in a thread; where that fails it becomes null and is deleted.
  void add_set_up(twComm_t* handle) { set_ups_.push_back(handle); }

 private:
  /// What is asked of one communicator.
  struct Work {
    explicit Work(twComm& of) : handle(&of) {}

    twComm* handle;
    std::vector<tensorwire::comm::Call> calls;
    std::vector<std::vector<std::uint64_t>> counts;  ///< by call
    std::vector<tensorwire::comm::Transfer> transfers;
    struct OnStream {
      explicit OnStream(const GpuCall& first) : call(first) {}

      GpuCall call;
      std::vector<tensorwire::comm::Transfer> transfers;
    };
    std::vector<OnStream> on_gpu;
    std::size_t begun = 0;
    bool under_way = false;
    twResult_t result = twInProgress;
  };

  Work& work_of(twComm& handle);
  twResult_t finish_set_ups();
  static twResult_t run(std::vector<Work>& all);
  /// True when it did something or came to its end.
  static bool push(Work& work);
  static bool begin_next(Work& work);

  int depth_ = 0;
  std::vector<Work> work_;
  std::vector<twComm_t*> set_ups_;
};

[[nodiscard]] ThreadGroup& thread_group() noexcept;
