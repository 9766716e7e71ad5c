// A recorded trace as a JSON file that Perfetto (ui.perfetto.dev) and chrome://tracing open: a process for each rank,
// with tracks for operations, plan steps, work requests and completions. A write and its arrival at the peer share a
// flow, so that merged files (`tensorwire trace merge`) show an arrow.
#pragma once

#include <string>

#include "comm/observe/gpu_log.hpp"
#include "comm/observe/trace_recorder.hpp"

namespace tensorwire::comm {

/// Times are microseconds of this process's monotonic clock; "clock_realtime_us" in otherData is what the system's
/// clock showed at its zero.
/// @param gpu what ran on the rank's GPU, which becomes a track of its own; may be null
[[nodiscard]] std::string trace_json(const TraceRecorder& recorder, const GpuLog* gpu = nullptr);

}  // namespace tensorwire::comm
