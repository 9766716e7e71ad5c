// What a rank does, event by event, in a ring that was made at set-up: operations, plan steps, work requests and
// completions. Recording stores 64 bytes and reads the clock; nothing allocates. The oldest events make room for new
// ones. Who does not trace has no recorder. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "collective/runner.hpp"
#include "comm/link.hpp"
#include "comm/observe/operation_info.hpp"
#include "comm/observe/output_name.hpp"

namespace tensorwire::comm {

enum class TraceKind : std::uint8_t {
  kOperation,  ///< from the call to its end
  kStep,       ///< a plan step was done; copies and reductions have a length
  kWrite,      ///< a work request was posted
  kArrival,    ///< the completion of a peer's write was taken
  kSent,       ///< the completion of an own write was taken
};

struct TraceEvent {
  Ps begun = 0, ended = 0;
  std::uint64_t operation = 0;
  std::uint64_t number = 0;  ///< kOperation: elements; kStep, kSent: the segment; kWrite, kArrival: the pair's sequence
  std::uint64_t bytes = 0;
  Ps waited = 0;           ///< kOperation
  std::uint32_t peer = 0;  ///< kOperation: the peer that came last
  std::uint16_t step = 0;  ///< kStep, kSent
  TraceKind kind = TraceKind::kOperation;
  std::uint8_t message = 0;
  collective::StepKind step_kind = collective::StepKind::kCopy;
  bool failed = false;
  // kOperation
  collective::Collective collective = collective::Collective::kAllReduce;
  collective::Algorithm algorithm = collective::Algorithm::kOneShot;
  collective::DType dtype = collective::DType::kFloat32;
  collective::Op op = collective::Op::kSum;
};

class TraceRecorder final : public collective::StepWatcher {
 public:
  /// @param events that are kept. @throws std::bad_alloc.
  TraceRecorder(const Identity& who, std::size_t events);

  void begin_operation(std::uint64_t number) noexcept { operation_ = number; }
  void end_operation(const OperationInfo& info, Ps begun, Ps ended, Ps waited, std::uint32_t waited_for,
                     bool failed) noexcept;
  /// Before a copy or reduction: the step that is done next began now.
  void begin_work() noexcept;
  void step_done(const collective::Segment& segment, std::uint64_t number, std::uint16_t step) noexcept override;
  void on_write(const collective::WriteRequest& request, Ps begun) noexcept;
  /// After the runner dealt with it. @param begun when it was taken
  void on_event(const LinkEvent& event, Ps begun) noexcept;

  [[nodiscard]] const Identity& who() const noexcept { return who_; }
  /// From old to new.
  [[nodiscard]] std::vector<TraceEvent> events() const;
  /// Events that made room for others.
  [[nodiscard]] std::uint64_t dropped() const noexcept { return recorded_ - std::min(recorded_, ring_.size()); }

 private:
  /// Sequences travel as 12 bits: the full count, given the last one seen.
  struct Counted {
    std::uint64_t next = 0;
    [[nodiscard]] std::uint64_t full(std::uint32_t low_bits) noexcept;
  };

  TraceEvent& record(TraceKind kind, Ps begun, Ps ended) noexcept;
  void take_immediate(TraceEvent& event, std::uint32_t immediate, std::vector<Counted>& counts) noexcept;

  Identity who_;
  std::vector<TraceEvent> ring_;
  std::uint64_t recorded_ = 0;
  std::uint64_t operation_ = 0;
  Ps work_begun_ = 0;
  std::vector<Counted> sent_, received_;  ///< by peer
};

}  // namespace tensorwire::comm
