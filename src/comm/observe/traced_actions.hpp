// The runner's memory work on the CPU, timed while a trace is recorded.
#pragma once

#include <span>

#include "base/stream_copy.hpp"
#include "collective/runner.hpp"
#include "comm/observe/trace_recorder.hpp"

namespace tensorwire::comm {

class TracedActions : public collective::HostActions {
 public:
  void copy(const std::byte* from, std::byte* to, std::size_t bytes) noexcept override {
    if (trace_ != nullptr) trace_->begin_work();
    HostActions::copy(from, to, bytes);
  }
  void copy_past_caches(const std::byte* from, std::byte* to, std::size_t bytes) noexcept {
    if (trace_ != nullptr) trace_->begin_work();
    stream_copy(to, from, bytes);
  }
  void reduce(const collective::Reduction& what, std::span<const std::byte* const> operands, std::byte* output,
              std::byte* second_output, std::size_t bytes) noexcept override {
    if (trace_ != nullptr) trace_->begin_work();
    HostActions::reduce(what, operands, output, second_output, bytes);
  }

 protected:
  TraceRecorder* trace_ = nullptr;  ///< null: not traced
};

}  // namespace tensorwire::comm
