#include "comm/c_api_group.hpp"

#include <sched.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.hpp"
#include "comm/c_api_thread.hpp"

using namespace tensorwire;

namespace {

/// How several communicators are waited for: none of them may sleep in its link, because any may be next.
constexpr std::uint32_t kPassesBeforeYield = 64;
constexpr std::uint32_t kPassesBeforeSleep = 4096;
constexpr Ps kNap = 20 * kMicrosecond;

void pause_after(std::uint32_t idle_passes) noexcept {
  if (idle_passes > kPassesBeforeSleep) {
    nap(kNap);
  } else if (idle_passes > kPassesBeforeYield) {
    sched_yield();
  }
}

}  // namespace

ThreadGroup& thread_group() noexcept {
  static thread_local ThreadGroup group;
  return group;
}

ThreadGroup::Work& ThreadGroup::work_of(twComm& handle) {
  const auto found = std::ranges::find(work_, &handle, &Work::handle);
  return found != work_.end() ? *found : work_.emplace_back(handle);
}

void ThreadGroup::add(twComm& handle, const comm::Call& call) {
  Work& work = work_of(handle);
  work.calls.push_back(call);
  work.counts.emplace_back(call.counts.begin(), call.counts.end());
}

void ThreadGroup::add(twComm& handle, const comm::Transfer& transfer) { work_of(handle).transfers.push_back(transfer); }

void ThreadGroup::add(const GpuCall& call, const comm::Transfer& transfer) {
  std::vector<Work::OnStream>& all = work_of(call.handle).on_gpu;
  const auto found = std::ranges::find_if(all, [&](const auto& one) { return one.call.stream == call.stream; });
  Work::OnStream& of_stream = found != all.end() ? *found : all.emplace_back(call);
  of_stream.transfers.push_back(transfer);
}

twResult_t ThreadGroup::end() {
  if (--depth_ != 0) return twSuccess;
  const twResult_t set_up = finish_set_ups();
  std::vector<Work> work = std::move(work_);
  work_.clear();
  if (set_up != twSuccess || work.empty()) return set_up;

  // Nothing is sent before every communicator is ours.
  std::vector<std::unique_ptr<HandleInUse>> uses;
  for (const Work& one : work) {
    uses.push_back(std::make_unique<HandleInUse>(*one.handle));
    if (const twResult_t ready = one.handle->ready("twGroupEnd", *uses.back()); ready != twSuccess) return ready;
  }
  for (const Work& one : work) {
    for (const Work::OnStream& messages : one.on_gpu) {
      if (const twResult_t result = run_on_gpu(messages.call, messages.transfers); result != twSuccess) return result;
    }
  }
  return run(work);
}

twResult_t ThreadGroup::finish_set_ups() {
  twResult_t first = twSuccess;
  for (twComm_t* slot : std::exchange(set_ups_, {})) {
    const twResult_t result = (*slot)->wait_for_set_up();
    if (result == twSuccess) continue;
    if (first == twSuccess) {
      first = result;
      set_thread_line((*slot)->last_line());
    }
    delete std::exchange(*slot, nullptr);
  }
  return first;
}

twResult_t ThreadGroup::run(std::vector<Work>& all) {
  const auto unfinished = [](const Work& work) { return work.result == twInProgress; };
  for (std::uint32_t idle_passes = 0; std::ranges::any_of(all, unfinished);) {
    bool moved = false;
    for (Work& work : all) {
      if (unfinished(work)) moved = push(work) || moved;
    }
    idle_passes = moved ? 0 : idle_passes + 1;
    pause_after(idle_passes);
  }
  const auto failed = std::ranges::find_if(all, [](const Work& work) { return work.result != twSuccess; });
  return failed == all.end() ? twSuccess : failed->result;
}

bool ThreadGroup::push(Work& work) {
  if (!work.under_way) return begin_next(work);
  switch (work.handle->communicator()->advance()) {
    case comm::Progress::kDone:
      work.under_way = false;
      return true;
    case comm::Progress::kWorked:
      return true;
    case comm::Progress::kFailed:
      work.result = work.handle->result_of(false);
      return true;
    case comm::Progress::kIdle:
      break;
  }
  return false;
}

bool ThreadGroup::begin_next(Work& work) {
  comm::Communicator& communicator = *work.handle->communicator();
  bool begun = false;
  if (work.begun < work.calls.size()) {
    comm::Call& call = work.calls[work.begun];
    call.counts = work.counts[work.begun++];
    begun = communicator.begin(call);
  } else if (!work.transfers.empty()) {
    begun = communicator.begin(work.transfers);
    if (begun) work.transfers.clear();  // it keeps what it needs of them
  } else {
    work.result = twSuccess;
    return true;
  }
  work.under_way = begun;
  if (!begun) work.result = work.handle->result_of(false);
  return true;
}

twResult_t twGroupStart(void) {
  thread_group().start();
  return twSuccess;
}

twResult_t twGroupEnd(void) {
  if (!thread_group().is_open()) {
    set_thread_line("twGroupEnd: no group was started by this thread");
    return twInvalidUsage;
  }
  try {
    return thread_group().end();
  } catch (const std::exception& error) {
    set_thread_line(error.what());
    return twInternalError;
  }
}
