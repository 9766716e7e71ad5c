#include "comm/observe/trace_json.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <ctime>

#include "base/clock.hpp"
#include "base/json_text.hpp"
#include "base/units.hpp"
#include "comm/observe/trace_lines.hpp"

namespace tensorwire::comm {

namespace {

constexpr int kOperations = 1, kSteps = 2, kWrites = 3, kCompletions = 4, kGpu = 5;

double realtime_us() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

/// The events of one rank as lines.
class Lines : public TraceLines {
 public:
  explicit Lines(const Identity& who) : TraceLines(who) {
    metadata("thread_name", kOperations, "operations");
    metadata("thread_name", kSteps, "plan steps");
    metadata("thread_name", kWrites, "work requests");
    metadata("thread_name", kCompletions, "completions");
  }

  void add(const TraceEvent& event) {
    switch (event.kind) {
      case TraceKind::kOperation:
        return operation(event);
      case TraceKind::kStep:
        return slice(event, kSteps, "step", std::string{collective::name_of(event.step_kind)},
                     fmt::format(R"("operation":{},"segment":{},"step":{},"peer":{},"message":{},"bytes":{})",
                                 event.operation, event.number, event.step, event.peer, event.message, event.bytes));
      case TraceKind::kWrite:
        return message(event, kWrites, "to", 's', who_.rank, event.peer);
      case TraceKind::kArrival:
        return message(event, kCompletions, "from", 'f', event.peer, who_.rank);
      case TraceKind::kSent:
        return slice(
            event, kCompletions, "completion", "sent",
            fmt::format(R"("operation":{},"segment":{},"step":{})", event.operation, event.number, event.step));
    }
  }

  void add(const GpuLog& log, Ps now) {
    metadata("thread_name", kGpu, "GPU");
    for (const GpuOperation& operation : log.operations()) {
      const bool done = operation.ended != 0;
      const Ps ended = done ? operation.ended : now;
      line(fmt::format(R"("ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"cat":"gpu operation","name":"{} {}",)"
                       R"("args":{{"number":{},{},"state":"{}"}})",
                       who_.rank, kGpu, microseconds(operation.begun), microseconds(ended - operation.begun),
                       name_of(kind_of(operation.entry)), format_bytes(operation.entry.bytes), operation.entry.number,
                       operation.json_fields(), done ? "done" : "not over"));
    }
  }

 private:
  void slice(const TraceEvent& event, int track, std::string_view category, const std::string& name,
             const std::string& arguments) {
    line(fmt::format(R"("ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"cat":"{}","name":"{}","args":{{{}}})", who_.rank,
                     track, microseconds(event.begun), microseconds(event.ended - event.begun), category, name,
                     arguments));
  }

  void operation(const TraceEvent& event) {
    OperationInfo info{event.operation, event.number, event.bytes, event.collective,
                       event.algorithm, event.dtype,  event.op};
    std::string arguments = fmt::format(R"({},"state":"{}")", json_fields(info), event.failed ? "failed" : "done");
    arguments += waited_fields(event.waited, event.peer);
    slice(event, kOperations, "operation",
          fmt::format("{} {}", collective::name_of(event.collective), format_bytes(event.bytes)), arguments);
  }

  /// A write or an arrival, and its end of the arrow. What is beside the sequences has no number, so no arrow.
  void message(const TraceEvent& event, int track, std::string_view preposition, char phase, std::uint32_t from,
               std::uint32_t to) {
    const bool credit = event.message == collective::kCreditMessage;
    const bool beside = credit || event.message == collective::kInvitationMessage;
    std::string arguments =
        fmt::format(R"("operation":{},"peer":{},"bytes":{})", event.operation, event.peer, event.bytes);
    if (!beside) arguments += fmt::format(R"(,"sequence":{},"message":{})", event.number, event.message);
    slice(event, track, phase == 's' ? "work request" : "completion",
          fmt::format("{} {} {}",
                      credit         ? "credit"
                      : beside       ? "invitation"
                      : phase == 's' ? "write"
                                     : "arrival",
                      preposition, event.peer),
          arguments);
    if (beside) return;
    line(fmt::format(R"("ph":"{}","bp":"e","pid":{},"tid":{},"ts":{},"cat":"message","name":"message",)"
                     R"("id":"{}.{}>{}.{}.{}")",
                     phase, who_.rank, track, microseconds(event.begun), who_.communicator, from, to, event.number,
                     event.message));
  }
};

}  // namespace

std::string trace_json(const TraceRecorder& recorder, const GpuLog* gpu) {
  const Identity& who = recorder.who();
  Lines lines{who};
  for (const TraceEvent& event : recorder.events()) lines.add(event);
  if (gpu != nullptr) lines.add(*gpu, monotonic_now());
  const std::string of_gpu = gpu == nullptr ? ""
                                            : fmt::format(R"(,"gpu_operations_dropped":{},"gpu_clock_error_us":{})",
                                                          gpu->dropped(), microseconds(gpu->clock_error()));
  const double origin = realtime_us() - static_cast<double>(monotonic_now()) / static_cast<double>(kMicrosecond);
  const std::string other = fmt::format(
      R"({{"producer":"tensorwire","version":1,"rank":{},"ranks":{},"communicator":{},"host":{},"process":{},)"
      R"("clock_realtime_us":{:.3f},"events_dropped":{}{}}})",
      who.rank, who.ranks, who.communicator, json_quoted(who.host), getpid(), origin, recorder.dropped(), of_gpu);
  return "{\"displayTimeUnit\":\"ns\",\"otherData\":" + other + ",\"traceEvents\":[\n" + std::move(lines).take() +
         "\n]}\n";
}

}  // namespace tensorwire::comm
