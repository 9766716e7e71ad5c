// `tensorwire trace`: what to do with the files that TENSORWIRE_TRACE made.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "base/atomic_file.hpp"
#include "cli/program.hpp"
#include "cli/trace/merge.hpp"
#include "cli/trace/timeline.hpp"

namespace tensorwire::cli {

namespace {

struct MergeFlags {
  std::vector<std::string> files;
  std::string output;
};

void merge(const MergeFlags& flags) {
  std::vector<RankTrace> traces;
  for (const std::string& file : flags.files) traces.push_back(read_rank_trace(file));
  const MergedTrace merged = merge_traces(std::move(traces));
  replace_file(flags.output, merged.content.dump() + "\n");
  for (const ClockAlignment& clock : merged.clocks) {
    const std::string how = clock.by_messages
                                ? fmt::format("known within {:.1f} us by messages", clock.within_us)
                                : std::string{"by the system's clock: no messages both ways lead to the first file"};
    fmt::print("{}: rank {}, communicator {}, clock moved by {:.3f} us, {}\n", clock.path, clock.rank,
               clock.communicator, clock.offset_us, how);
  }
  fmt::print("{}: {} files, {} messages with both ends; open it at ui.perfetto.dev\n", flags.output,
             merged.clocks.size(), merged.messages);
}

struct TimelineFlags {
  std::string file;
  std::optional<std::uint64_t> round;
};

void timeline(const TimelineFlags& flags) {
  const RankTrace trace = read_rank_trace(flags.file);
  fmt::print("{}", draw_timeline(flags.file, trace.content, flags.round));
}

}  // namespace

void add_trace(Command& parent, int& /*status*/) {
  Command trace = parent.command("trace", "work on traces (TENSORWIRE_TRACE=file makes them)");
  trace.needs_command();
  Command command = trace.command("merge", "put the traces of all ranks into one file, on one clock");
  auto flags = std::make_shared<MergeFlags>();
  command.option("files", flags->files, "a trace of each rank").required().existing_file();
  command.option("-o,--output", flags->output, "the file to write").required();
  command.runs([flags] { merge(*flags); });
  Command draw = trace.command("timeline", "draw the hops of one round of a GPU's proxy, as a Mermaid chart");
  auto what = std::make_shared<TimelineFlags>();
  draw.option("file", what->file, "a trace with .gpu in its name").required().existing_file();
  draw.option("--round", what->round, "its number; without it the last one");
  draw.runs([what] { timeline(*what); });
}

}  // namespace tensorwire::cli
