// The hops of a GPU's proxy as a chart.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "cli/trace/timeline.hpp"

namespace tensorwire::cli {
namespace {

nlohmann::json trace_of_two_rounds() {
  return nlohmann::json::parse(R"({
    "otherData": {"rank": 3, "gpu_clock_within_ns": 800},
    "traceEvents": [
      {"ph": "M", "tid": 11, "name": "thread_name", "args": {"name": "GPU"}},
      {"ph": "M", "tid": 13, "name": "thread_name", "args": {"name": "proxy"}},
      {"ph": "X", "tid": 13, "cat": "hop", "name": "packets", "ts": 1005.2, "dur": 30.1, "args": {"round": 8, "bytes": 4096}},
      {"ph": "X", "tid": 11, "cat": "hop", "name": "fills", "ts": 1000, "dur": 4.9, "args": {"round": 8, "bytes": 4096}},
      {"ph": "X", "tid": 11, "cat": "hop", "name": "fills", "ts": 900, "dur": 2, "args": {"round": 7, "bytes": 64}}
    ]})");
}

TEST(TraceTimeline, DrawsTheLastRoundFromItsBegin) {
  EXPECT_EQ(draw_timeline("t.json", trace_of_two_rounds(), std::nullopt),
            "gantt\n  title rank 3, round 8 of 4096 bytes: 35.3 us (clocks of GPU and host known within 0.8 us)\n"
            "  dateFormat x\n  axisFormat %L\n  section GPU\n  fills : 0, 5\n  section proxy\n  packets : 5, 35\n");
}

TEST(TraceTimeline, DrawsTheRoundThatIsAskedForOrSaysThatThereIsNone) {
  EXPECT_NE(draw_timeline("t.json", trace_of_two_rounds(), 7).find("round 7 of 64 bytes: 2.0 us"), std::string::npos);
  EXPECT_THROW(static_cast<void>(draw_timeline("t.json", trace_of_two_rounds(), 9)), Error);
  EXPECT_THROW(static_cast<void>(draw_timeline("t.json", nlohmann::json::object(), std::nullopt)), Error);
}

}  // namespace
}  // namespace tensorwire::cli
