// `tensorwire bench allreduce`: all-reduce over a range of sizes, in the manner of nccl-tests: time, algorithm and bus
// bandwidth, wrong elements.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "cli/bench/progress_bar.hpp"
#include "cli/bench/report.hpp"
#include "cli/bench/session.hpp"
#include "cli/bench/statistics.hpp"
#include "cli/bench/workload.hpp"
#include "cli/program.hpp"

namespace tensorwire::cli {

namespace {

struct SweepFlags {
  SessionFlags session;
  std::string min_bytes = "1KiB";
  std::string max_bytes = "64MiB";
  std::uint32_t factor = 2;
  std::uint32_t iterations = 20;
  std::uint32_t warmup = 5;
};

struct SweepRow {
  std::string path;
  std::uint64_t bytes = 0;
  std::string algorithm;
  LatencySummary latency;
  std::uint64_t wrong = 0;
};

/// GB/s of user data through one all-reduce.
double algorithm_bandwidth(const SweepRow& row) {
  return row.latency.p50 == 0 ? 0 : static_cast<double>(row.bytes) * 1000 / static_cast<double>(row.latency.p50);
}

/// What each rank must at least send, per second: 2 (n-1)/n of the data (nccl-tests, PERFORMANCE.md).
double bus_bandwidth(const SweepRow& row, int ranks) { return algorithm_bandwidth(row) * 2 * (ranks - 1) / ranks; }

SweepRow measure(Session& session, const SweepFlags& flags, const std::string& name, std::uint64_t bytes) {
  const PathShape shape{bytes / collective::element_bytes(session.dtype), session.dtype};
  const auto path = make_path(name, *session.group, {shape, session.comm});
  std::vector<std::byte> in(shape.bytes());
  std::vector<std::byte> out(shape.bytes());
  SweepRow row{name, shape.bytes(), path->algorithm(), {}, 0};

  fill_input(session.dtype, static_cast<std::uint32_t>(session.group->rank()), bytes, in);
  std::vector<Ps> samples;
  for (std::uint32_t i = 0; i < flags.warmup + flags.iterations; ++i) {
    const Ps started = monotonic_now();
    const bool counts = path->all_reduce(in.data(), out.data());
    if (i >= flags.warmup) samples.push_back(counts ? monotonic_now() - started : kNoSample);
  }
  row.latency = summarise(slowest_rank(gather(*session.group, samples)));

  const std::uint64_t mine =
      path->reduces() ? count_wrong(session.dtype, static_cast<std::uint32_t>(session.group->world_size()), bytes, out)
                      : 0;
  for (const auto& wrong : gather(*session.group, std::vector<std::uint64_t>{mine})) row.wrong += wrong[0];
  return row;
}

std::vector<std::uint64_t> sizes_of(const SweepFlags& flags) {
  const std::uint64_t least = parse_bytes(flags.min_bytes);
  const std::uint64_t most = parse_bytes(flags.max_bytes);
  if (least < 4 || least > most)
    throw Error{"sizes " + flags.min_bytes + " to " + flags.max_bytes, "no range from at least 4 bytes up"};
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = least; size <= most; size *= flags.factor) sizes.push_back(size / 4 * 4);
  return sizes;
}

std::string render(const std::vector<SweepRow>& rows, const Session& session) {
  const int ranks = session.group->world_size();
  std::string text = fmt::format("# all-reduce (sum), {}, {} ranks; time is the slowest rank's\n",
                                 collective::name_of(session.dtype), ranks);
  text += fmt::format("{:>10} {:>10} {:>5} {:>10} {:>9} {:>10} {:>10} {:>10} {:>8} {:>8} {:>7}\n", "size(B)", "count",
                      "type", "path", "plan", "p50(us)", "p99(us)", "max(us)", "algbw", "busbw", "#wrong");
  for (const SweepRow& row : rows) {
    text +=
        fmt::format("{:>10} {:>10} {:>5} {:>10} {:>9} {:>10.1f} {:>10.1f} {:>10.1f} {:>8.3f} {:>8.3f} {:>7}\n",
                    row.bytes, row.bytes / collective::element_bytes(session.dtype), collective::name_of(session.dtype),
                    row.path, row.algorithm, microseconds(row.latency.p50), microseconds(row.latency.p99),
                    microseconds(row.latency.max), algorithm_bandwidth(row), bus_bandwidth(row, ranks), row.wrong);
  }
  return text + "# bandwidths in GB/s\n";
}

nlohmann::json to_json(const std::vector<SweepRow>& rows, const Session& session) {
  const int ranks = session.group->world_size();
  nlohmann::json json{{"ranks", ranks},
                      {"dtype", collective::name_of(session.dtype)},
                      {"notes", session.notes},
                      {"results", nlohmann::json::array()}};
  for (const SweepRow& row : rows) {
    json["results"].push_back({{"path", row.path},
                               {"bytes", row.bytes},
                               {"algorithm", row.algorithm},
                               {"p50_us", microseconds(row.latency.p50)},
                               {"p99_us", microseconds(row.latency.p99)},
                               {"max_us", microseconds(row.latency.max)},
                               {"algbw_gb_s", algorithm_bandwidth(row)},
                               {"busbw_gb_s", bus_bandwidth(row, ranks)},
                               {"wrong", row.wrong}});
  }
  return json;
}

int sweep(const SweepFlags& flags) {
  const std::vector<std::uint64_t> sizes = sizes_of(flags);
  return run_session(flags.session, [&](Session& session) {
    std::erase(session.paths, "udp-floor");
    std::vector<SweepRow> rows;
    std::uint64_t wrong = 0;
    {
      ProgressBar bar("all-reduce", sizes.size() * session.paths.size(), session.group->rank() == 0);
      for (const std::uint64_t bytes : sizes) {
        for (const std::string& path : session.paths) {
          rows.push_back(measure(session, flags, path, bytes));
          wrong += rows.back().wrong;
          bar.advance();
        }
      }
    }
    if (session.group->rank() == 0) {
      fmt::print("{}", render(rows, session));
      if (!flags.session.json.empty()) write_file(flags.session.json, to_json(rows, session).dump(2) + "\n");
    }
    return wrong == 0 ? 0 : 1;
  });
}

}  // namespace

void add_bench_allreduce(Command& parent, int& status) {
  auto flags = std::make_shared<SweepFlags>();
  Command command = parent.command("allreduce", "all-reduce from 1 KiB to 64 MiB, in the manner of nccl-tests");
  command.option("-b,--min-bytes", flags->min_bytes, "smallest tensor").shows_default();
  command.option("-e,--max-bytes", flags->max_bytes, "largest tensor").shows_default();
  command.option("-f,--factor", flags->factor, "factor between sizes").shows_default().between(2, 1024);
  command.option("-n,--iterations", flags->iterations, "timed iterations for each size")
      .shows_default()
      .between(1, 1'000'000);
  command.option("-w,--warmup", flags->warmup, "iterations before them").shows_default();
  flags->session.add_to(command);
  command.runs([flags, &status] { status = sweep(*flags); });
}

}  // namespace tensorwire::cli
