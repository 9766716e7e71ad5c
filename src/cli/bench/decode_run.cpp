#include "cli/bench/decode_run.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/mapped_memory.hpp"
#include "base/units.hpp"
#include "cli/bench/progress_bar.hpp"
#include "cli/bench/workload.hpp"
#include "collective/immediate.hpp"
#include "collective/plan.hpp"

namespace tensorwire::cli {

namespace {

constexpr std::size_t kPage = 4096;
/// Activations of a model live in a few buffers that layer after layer reuses; between two rounds over them, results
/// are checked and fresh inputs made.
constexpr std::size_t kTensors = 8;
constexpr std::size_t kArenaBytes = 512UL << 20;  ///< at most, for very large tensors
constexpr double kTcpTolerance = 1.15;

/// Page-aligned tensors of `slots` operations.
class Arena {
 public:
  Arena(std::size_t tensor_bytes, std::size_t slots)
      : tensor_bytes_(tensor_bytes),
        stride_((tensor_bytes + kPage - 1) / kPage * kPage + kPage),
        memory_(stride_ * slots, "memory for tensors") {}

  [[nodiscard]] std::span<std::byte> tensor(std::size_t slot) const noexcept {
    return memory_.bytes().subspan(slot * stride_, tensor_bytes_);
  }

 private:
  std::size_t tensor_bytes_;
  std::size_t stride_;
  MappedMemory memory_;
};

/// What one rank measured on one path at one gap.
struct Measurement {
  std::vector<Ps> samples;
  Ps cpu = 0;
  std::uint64_t packets = 0;
  std::uint64_t retransmissions = 0;
  bool counts_packets = false;
};

/// What ranks tell each other about one operation.
struct RunVerdict {
  std::uint32_t hash = 0;
  std::uint32_t wrong = 0;
};

/// The planted bug of `--plant-wrong-slot`: on rank 0, every data write of the chosen operation that carries no
/// signature goes to the neighbouring slot of its peer.
class WrongSlot {
 public:
  explicit WrongSlot(std::int64_t operation) : operation_(operation) {}

  void install(Session& session) {
    if (operation_ < 0 || session.group->rank() != 0) return;
    const std::uint64_t slot = session.comm.slot_payload_bytes + collective::kSlotHeaderBytes;
    const std::uint32_t depth = session.comm.depth;
    session.comm.fault_hook = [this, slot, depth](comm::WriteRequest& write) {
      const auto immediate = collective::Immediate::unpack(write.immediate);
      if (current_ != operation_ || immediate.message == 0 || immediate.message == collective::kCreditMessage) return;
      planted_ = true;
      write.remote_offset += immediate.sequence % depth == 0 ? slot : 0 - slot;
    };
  }
  void at(std::int64_t operation) noexcept { current_ = operation; }
  /// @throws Error when nothing was there to plant it in: a bug that was asked for and never happened proves nothing.
  void confirm(const Session& session) const {
    if (operation_ < 0 || session.group->rank() != 0 || planted_) return;
    throw Error{fmt::format("plant a wrong slot in operation {} of each token", operation_),
                "no such operation, or its plan (one-shot) has no write without a signature",
                "Choose a smaller operation, or --algorithm two-shot"};
  }

 private:
  std::int64_t operation_;
  std::int64_t current_ = -1;
  bool planted_ = false;
};

class DecodeRun {
 public:
  DecodeRun(Session& session, const DecodePlan& plan)
      : session_(session),
        plan_(plan),
        wrong_slot_(plan.plant_wrong_slot),
        tensor_bytes_(plan.count * collective::element_bytes(session.dtype)),
        slots_(std::clamp<std::size_t>(kArenaBytes / std::max<std::size_t>(tensor_bytes_, 1), 1, kTensors)),
        inputs_(tensor_bytes_, slots_),
        outputs_(tensor_bytes_, slots_) {
    wrong_slot_.install(session);
    make_paths();
  }

  DecodeReport run() {
    const std::uint64_t tokens = plan_.gaps.size() * paths_.size() * (plan_.verify_tokens + plan_.tokens);
    ProgressBar bar("decode", tokens, session_.group->rank() == 0);
    for (std::size_t gap = 0; gap < plan_.gaps.size(); ++gap) {
      for (std::uint32_t token = 0; token < plan_.verify_tokens + plan_.tokens; ++token) {
        const bool verify = token < plan_.verify_tokens;
        if (token == plan_.verify_tokens && gap == 0) mark_started();
        for (std::size_t path = 0; path < paths_.size(); ++path) {
          run_token(path, gap, verify);
          bar.advance();
        }
      }
    }
    DecodeReport made = report();
    wrong_slot_.confirm(session_);  // after the last exchange: the other ranks are not to blame
    return made;
  }

 private:
  void make_paths() {
    const PathOptions options{{plan_.count, session_.dtype}, session_.comm};
    for (const std::string& name : session_.paths) paths_.push_back(make_path(name, *session_.group, options));
    if (std::ranges::count(session_.paths, "tcp") != 0)
      paths_.push_back(make_path("tcp-bare", *session_.group, options));
    measurements_.assign(paths_.size(), std::vector<Measurement>(plan_.gaps.size()));
  }

  void mark_started() const {
    if (session_.group->rank() == 0 && !plan_.started_file.empty()) write_file(plan_.started_file, "started\n");
  }

  void run_token(std::size_t path, std::size_t gap, bool verify) {
    for (std::uint32_t first = 0; first < plan_.all_reduces_per_token; first += static_cast<std::uint32_t>(slots_)) {
      const auto operations =
          static_cast<std::uint32_t>(std::min<std::size_t>(slots_, plan_.all_reduces_per_token - first));
      run_chunk(path, gap, first, operations, verify);
    }
  }

  /// Some operations of a token: inputs made, operations timed, results checked.
  void run_chunk(std::size_t path_index, std::size_t gap, std::uint32_t first, std::uint32_t operations, bool verify) {
    BenchPath& path = *paths_[path_index];
    const std::uint64_t iteration = next_iteration_;
    next_iteration_ += operations;
    for (std::uint32_t i = 0; i < operations; ++i) {
      fill_input(session_.dtype, static_cast<std::uint32_t>(session_.group->rank()), iteration + i, inputs_.tensor(i));
    }
    // A rendezvous over TCP leaves the ranks a fraction of a millisecond apart; one untimed operation aligns them.
    session_.group->barrier();
    (void)path.all_reduce(inputs_.tensor(0).data(), outputs_.tensor(0).data());

    Measurement chunk;
    timed_operations(path, first, operations, plan_.gaps[gap], chunk);
    if (path.reduces()) check(iteration, operations, verify);
    if (!verify) add(measurements_[path_index][gap], chunk);
  }

  void timed_operations(BenchPath& path, std::uint32_t first, std::uint32_t operations, Ps gap, Measurement& out) {
    const std::uint64_t packets = path.packets().value_or(0);
    const std::uint64_t retransmissions = path.retransmissions().value_or(0);
    const Ps cpu = process_cpu_time();
    for (std::uint32_t i = 0; i < operations; ++i) {
      compute(gap);
      wrong_slot_.at(first + i);
      const Ps started = monotonic_now();
      const bool counts = path.all_reduce(inputs_.tensor(i).data(), outputs_.tensor(i).data());
      out.samples.push_back(counts ? monotonic_now() - started : kNoSample);
    }
    wrong_slot_.at(-1);
    out.cpu = process_cpu_time() - cpu;
    out.packets = path.packets().value_or(0) - packets;
    out.retransmissions = path.retransmissions().value_or(0) - retransmissions;
    out.counts_packets = path.packets().has_value();
  }

  /// The compute time between two all-reduces: nothing polls. Where ranks share cores they take turns.
  void compute(Ps gap) const {
    if (gap == 0) return;
    const bool share = session_.comm.wait == comm::WaitPolicy::kBlock;
    for (const Ps end = monotonic_now() + gap; monotonic_now() < end;) {
      if (share) sched_yield();
    }
  }

  static void add(Measurement& total, const Measurement& chunk) {
    total.samples.insert(total.samples.end(), chunk.samples.begin(), chunk.samples.end());
    total.cpu += chunk.cpu;
    total.packets += chunk.packets;
    total.retransmissions += chunk.retransmissions;
    total.counts_packets = chunk.counts_packets;
  }

  /// Bit-identity by hash always; against fp64 in verification tokens.
  void check(std::uint64_t iteration, std::uint32_t operations, bool verify) {
    std::vector<RunVerdict> mine(operations);
    const auto ranks = static_cast<std::uint32_t>(session_.group->world_size());
    for (std::uint32_t i = 0; i < operations; ++i) {
      mine[i].hash = result_hash(outputs_.tensor(i));
      if (verify) mine[i].wrong = count_wrong(session_.dtype, ranks, iteration + i, outputs_.tensor(i)) != 0 ? 1 : 0;
    }
    const auto all = gather(*session_.group, mine);
    for (std::uint32_t i = 0; i < operations; ++i) {
      const bool differs = std::ranges::any_of(
          all, [&](const auto& theirs) { return theirs[i].hash != mine[i].hash || theirs[i].wrong != 0; });
      mismatches_ += differs ? 1 : 0;
    }
    verified_ += operations;
  }

  PathResult collect(std::size_t path, std::size_t gap) {
    const Measurement& mine = measurements_[path][gap];
    PathResult result;
    result.path = paths_[path]->name();
    result.description = paths_[path]->description();
    result.gap = plan_.gaps[gap];
    std::vector<Ps> slowest = slowest_rank(gather(*session_.group, mine.samples));
    result.operations = slowest.size();
    result.latency = summarise(std::move(slowest));
    std::uint64_t packets = 0;
    std::uint64_t retransmissions = 0;
    for (const auto& sums : gather(*session_.group, std::vector<std::uint64_t>{static_cast<std::uint64_t>(mine.cpu),
                                                                               mine.packets, mine.retransmissions})) {
      result.cpu += static_cast<Ps>(sums[0]);
      packets += sums[1];
      retransmissions += sums[2];
    }
    if (mine.counts_packets) result.packets = packets;
    if (paths_[path]->retransmissions()) result.retransmissions = retransmissions;
    return result;
  }

  DecodeReport report() {
    DecodeReport report;
    report.model = plan_.model;
    report.dtype = std::string{collective::name_of(session_.dtype)};
    report.ranks = session_.group->world_size();
    report.all_reduces_per_token = plan_.all_reduces_per_token;
    report.bytes = tensor_bytes_;
    report.verified_operations = verified_;
    report.mismatches = mismatches_;
    report.notes = session_.notes;
    for (const auto& path : paths_) {
      if (!path->algorithm().empty()) report.algorithm = path->algorithm();
    }
    for (std::size_t gap = 0; gap < plan_.gaps.size(); ++gap) {
      std::optional<PathResult> bare;
      for (std::size_t path = 0; path < paths_.size(); ++path) {
        PathResult result = collect(path, gap);
        if (result.path == "tcp-bare") {
          bare = result;
        } else {
          report.results.push_back(std::move(result));
        }
      }
      if (bare) judge_tcp(report, *bare);
    }
    return report;
  }

  /// The plan over TCP is a fair yardstick only when it costs little more than its bytes and sums do by themselves.
  static void judge_tcp(DecodeReport& report, const PathResult& bare) {
    const auto tcp =
        std::ranges::find_if(report.results, [&](const PathResult& r) { return r.path == "tcp" && r.gap == bare.gap; });
    if (tcp == report.results.end() || bare.latency.p50 == 0) return;
    const double ratio = static_cast<double>(tcp->latency.p50) / static_cast<double>(bare.latency.p50);
    report.tcp_over_bare = std::max(report.tcp_over_bare, ratio);
    report.tcp_valid = report.tcp_over_bare <= kTcpTolerance;
    report.notes.push_back(
        fmt::format("tcp at gap {} is {:.2f} x an all-reduce written by hand over bare sockets (p50 {:.1f} us){}",
                    format_duration(bare.gap), ratio, microseconds(bare.latency.p50),
                    ratio <= kTcpTolerance ? "" : ": above 1.15, so the comparison with TCP is INVALID in this run"));
  }

  Session& session_;
  const DecodePlan& plan_;
  WrongSlot wrong_slot_;
  std::size_t tensor_bytes_;
  std::size_t slots_;
  Arena inputs_;
  Arena outputs_;
  std::vector<std::unique_ptr<BenchPath>> paths_;
  std::vector<std::vector<Measurement>> measurements_;  ///< [path][gap]
  std::uint64_t next_iteration_ = 0;
  std::uint64_t verified_ = 0;
  std::uint64_t mismatches_ = 0;
};

}  // namespace

DecodeReport run_decode(Session& session, const DecodePlan& plan) { return DecodeRun{session, plan}.run(); }

}  // namespace tensorwire::cli
