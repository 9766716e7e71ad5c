// `tensorwire tune`: measures the fabric with the communicator itself, in a few seconds, fits the cost model's
// parameters and keeps them, with the thresholds between algorithms, for this topology (comm/tuning.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "cli/bench/report.hpp"
#include "cli/bench/session.hpp"
#include "cli/bench/statistics.hpp"
#include "cli/bench/workload.hpp"
#include "cli/program.hpp"
#include "cli/tune_fit.hpp"
#include "collective/reduce.hpp"
#include "comm/tuning.hpp"

namespace tensorwire::cli {

namespace {

using collective::Algorithm;
using collective::DType;
using collective::FabricCost;

constexpr std::uint64_t kSmallest = 256;
constexpr std::uint64_t kLargest = 4 << 20;
constexpr std::uint32_t kWarmup = 8;

struct TuneFlags {
  SessionFlags session;
  std::string file;
  bool dry_run = false;
};

/// Enough for a median that stands still, and a few seconds in all.
std::uint32_t iterations_for(std::uint64_t bytes) {
  if (bytes <= 16 << 10) return 200;
  return bytes <= 256 << 10 ? 60 : 12;
}

comm::CommOptions options_for(const Session& session, const std::string& path, Algorithm algorithm) {
  comm::CommOptions options = session.comm;
  if (path != "local") options.path = comm::PathChoice::kPackets;
  constexpr std::uint64_t kAnySize = collective::Thresholds::kAlways;
  options.thresholds = {};
  options.thresholds.one_shot_bytes = options.thresholds.one_shot_bytes_pair =
      algorithm == Algorithm::kOneShot ? kAnySize : 0;
  return options;
}

double median_us(Session& session, comm::Communicator& communicator, std::uint64_t bytes) {
  std::vector<std::byte> in(bytes);
  std::vector<std::byte> out(bytes);
  const auto ranks = static_cast<std::uint32_t>(session.group->world_size());
  fill_input(DType::kFloat32, static_cast<std::uint32_t>(session.group->rank()), bytes, in);
  std::vector<Ps> samples;
  for (std::uint32_t i = 0; i < kWarmup + iterations_for(bytes); ++i) {
    const Ps started = monotonic_now();
    if (!communicator.all_reduce(in.data(), out.data(), bytes / 4, DType::kFloat32)) {
      throw Error{"tune", communicator.error()->line};
    }
    if (i >= kWarmup) samples.push_back(monotonic_now() - started);
  }
  if (count_wrong(DType::kFloat32, ranks, bytes, out) != 0) throw Error{"tune", "an all-reduce gave a wrong sum"};
  return microseconds(summarise(slowest_rank(gather(*session.group, samples))).p50);
}

/// Bytes read in a microsecond while every rank does the same: they share caches and memory in an all-reduce too.
template <class Work>
double shared_speed(Session& session, std::uint64_t bytes_read, const Work& work) {
  constexpr int kRounds = 64;
  work();
  session.group->barrier();
  const Ps started = monotonic_now();
  for (int i = 0; i < kRounds; ++i) work();
  const Ps took = std::max<Ps>(monotonic_now() - started, 1);
  const double mine = static_cast<double>(bytes_read) * kRounds / microseconds(took);
  double slowest = mine;
  for (const auto& theirs : gather(*session.group, std::vector<double>{mine})) slowest = std::min(slowest, theirs[0]);
  return slowest;
}

FabricCost measure_memory(Session& session) {
  constexpr std::size_t kBlock = 256 << 10;
  std::vector<std::byte> a(kBlock), b(kBlock), sum(kBlock);
  const std::vector<const std::byte*> operands{a.data(), b.data()};
  FabricCost cost;
  cost.copy_bytes_per_us = shared_speed(session, kBlock, [&] { std::memcpy(sum.data(), a.data(), kBlock); });
  cost.reduce_bytes_per_us = shared_speed(session, 2 * kBlock, [&] {
    collective::reduce({DType::kFloat32, collective::Op::kSum}, operands, sum.data(), nullptr, kBlock / 4);
  });
  return cost;
}

struct PathTuning {
  std::string path, key;
  comm::Tuning tuning;
  std::vector<Timed> times;
};

PathTuning tune_path(Session& session, const std::string& path, FabricCost cost) {
  PathTuning result{path, {}, {}, {}};
  const auto ranks = static_cast<std::uint32_t>(session.group->world_size());
  for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot}) {
    const auto communicator = comm::Communicator::create(*session.group, options_for(session, path, algorithm));
    bool held_out = false;
    for (std::uint64_t bytes = kSmallest; bytes <= kLargest; bytes *= 2, held_out = !held_out) {
      // Which is what is timed: large tensors go into windows, not through slots.
      const Algorithm runs = communicator->algorithm_for(bytes / 4, DType::kFloat32);
      result.times.push_back({runs, bytes, median_us(session, *communicator, bytes), held_out});
    }
    comm::Topology topology;
    for (int rank = 0; rank < session.group->world_size(); ++rank) topology.hosts.push_back(session.group->host(rank));
    for (const comm::PeerReport& peer : communicator->stats().peers) topology.paths.push_back(peer.path);
    result.key = topology.key();
  }
  if (path == "local") cost.mtu = 0;
  const comm::CommOptions& options = session.comm;
  result.tuning.ranks = ranks;
  result.tuning.cost = fit(result.times, ranks, cost, options.slot_payload_bytes, options.depth);
  result.tuning.thresholds.one_shot_bytes = result.tuning.thresholds.one_shot_bytes_pair =
      one_shot_threshold(result.times);
  double sum = 0;
  int count = 0;
  for (const Timed& timed : result.times) {
    if (!timed.held_out) continue;
    const double predicted = predicted_us(timed, ranks, result.tuning.cost, options.slot_payload_bytes, options.depth);
    sum += std::abs(predicted / timed.us - 1);
    ++count;
  }
  result.tuning.mean_error = sum / std::max(count, 1);
  return result;
}

void print(const PathTuning& result, const comm::CommOptions& options) {
  const FabricCost& cost = result.tuning.cost;
  fmt::print("# {}: {}\n", result.path, result.key);
  fmt::print("{:>10} {:>10} {:>12} {:>13} {:>8}\n", "size", "plan", "measured(us)", "predicted(us)", "error");
  for (const Timed& timed : result.times) {
    const double predicted = predicted_us(timed, result.tuning.ranks, cost, options.slot_payload_bytes, options.depth);
    fmt::print("{:>10} {:>10} {:>12.1f} {:>13.1f} {:>+7.0f}%{}\n", format_bytes(timed.bytes),
               collective::name_of(timed.algorithm), timed.us, predicted, 100 * (predicted / timed.us - 1),
               timed.held_out ? "" : "  (fitted)");
  }
  fmt::print(
      "start {:.2f} us, hop {:.2f} us; a message {:.2f} us to send, {:.2f} us to take; wire {:.2f}, copy {:.2f}, "
      "reduce {:.2f} "
      "GB/s; one-shot up to {}; mean error of what was not fitted {:.0f}%\n\n",
      cost.start_us, cost.hop_us, cost.message_us, cost.arrival_us, cost.wire_bytes_per_us / 1000,
      cost.copy_bytes_per_us / 1000, cost.reduce_bytes_per_us / 1000,
      format_bytes(result.tuning.thresholds.one_shot_bytes), 100 * result.tuning.mean_error);
}

nlohmann::json to_json(const PathTuning& result, const comm::CommOptions& options) {
  nlohmann::json document{{"path", result.path},
                          {"key", result.key},
                          {"mean_error", result.tuning.mean_error},
                          {"one_shot_bytes", result.tuning.thresholds.one_shot_bytes},
                          {"times", nlohmann::json::array()}};
  for (const Timed& timed : result.times) {
    document["times"].push_back({{"algorithm", collective::name_of(timed.algorithm)},
                                 {"bytes", timed.bytes},
                                 {"measured_us", timed.us},
                                 {"predicted_us", predicted_us(timed, result.tuning.ranks, result.tuning.cost,
                                                               options.slot_payload_bytes, options.depth)},
                                 {"fitted", !timed.held_out}});
  }
  return document;
}

int tune(const TuneFlags& flags) {
  return run_session(flags.session, [&](Session& session) {
    if (session.group->world_size() < 2) throw Error{"tune", "one rank alone has no fabric", "Start two or more"};
    std::erase_if(session.paths,
                  [](const std::string& path) { return path != "local" && path != "roce" && path != "rdma"; });
    const std::string file = flags.file.empty() ? comm::tune_file() : flags.file;
    const FabricCost memory = measure_memory(session);
    auto document = nlohmann::json::array();
    for (const std::string& path : session.paths) {
      const PathTuning result = tune_path(session, path, memory);
      if (session.group->rank() != 0) continue;
      print(result, session.comm);
      document.push_back(to_json(result, session.comm));
      if (!flags.dry_run && !file.empty()) comm::save_tuning(file, result.key, result.tuning);
    }
    if (session.group->rank() == 0) {
      if (!flags.session.json.empty()) write_file(flags.session.json, document.dump(2) + "\n");
      fmt::print("{}\n", flags.dry_run || file.empty() ? "kept nowhere" : "kept in " + file);
    }
    return 0;
  });
}

}  // namespace

void add_tune(Command& parent, int& status) {
  auto flags = std::make_shared<TuneFlags>();
  Command command =
      parent.command("tune", "measure this fabric and keep what algorithms are chosen by, for this topology");
  command.option("--file", flags->file,
                 "where to keep it (default: TENSORWIRE_TUNE, else ~/.config/tensorwire/tune.toml)");
  command.flag("--dry-run", flags->dry_run, "keep nothing");
  flags->session.add_to(command);
  command.runs([flags, &status] { status = tune(*flags); });
}

}  // namespace tensorwire::cli
