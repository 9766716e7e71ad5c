// `tensorwire plan COLLECTIVE`: which plan a collective takes, what each candidate would cost, how its sum is
// bracketed, its steps, and whether it is proved.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "base/units.hpp"
#include "cli/program.hpp"
#include "collective/check.hpp"
#include "collective/cost.hpp"
#include "comm/tuning.hpp"

namespace tensorwire::cli {

namespace {

using namespace collective;

struct PlanFlags {
  std::string collective;
  std::uint32_t ranks = 2;
  std::string bytes;
  std::optional<std::uint64_t> count;
  std::string dtype = "fp32";
  std::string op = "sum";
  std::string algorithm = "auto";
  std::uint16_t root = 0;
  std::uint16_t peer = 1;
  std::uint32_t group_size = 1;
  std::string slot_bytes = "256KiB";
  std::uint32_t depth = 2;
  std::uint32_t rank = 0;
  bool in_place = false;
  std::string source = "auto";
  std::optional<double> hop_us, gbit;
  std::string topology;
  bool explain = false, json = false, check = false;
};

/// Names as they are typed: "allreduce" for "all-reduce", "sendrecv" for "send/recv".
std::string plain(std::string_view name) {
  std::string text{name};
  std::erase_if(text, [](char c) { return c == '-' || c == '/' || c == ' ' || c == '_'; });
  return text;
}

template <class Choices>
auto named(const Choices& choices, const std::string& what, const std::string& text) {
  std::string known;
  for (const auto choice : choices) {
    if (plain(name_of(choice)) == plain(text)) return choice;
    known += (known.empty() ? "" : ", ") + std::string{name_of(choice)};
  }
  throw Error{what + " " + text, "there is none of that name", "Use one of: " + known};
}

/// A plan, and everything that can be said about it before it runs.
struct Study {
  Shape shape;
  BuildOptions build;
  FabricCost cost;
  std::string fabric = "a NIC as it might be";  ///< where the cost comes from
  Thresholds thresholds;
  std::uint64_t slot_bytes = 0;
  std::vector<Candidate> candidates;  ///< the cheapest first
  Candidate chosen;
  Plan full, last;  ///< the first segment, and the last
};

Shape shape_of(const PlanFlags& flags) {
  Shape shape;
  shape.ranks = flags.ranks;
  shape.dtype = named(kDTypes, "--dtype", flags.dtype);
  shape.op = named(kOps, "--op", flags.op);
  shape.collective = named(kCollectives, "plan", flags.collective);
  shape.root = flags.root;
  if (shape.collective == Collective::kSendRecv) shape.peer = flags.peer;
  if (flags.count && !flags.bytes.empty()) throw Error{"--count and --bytes", "both say how much", "Give one"};
  const std::uint64_t bytes = flags.bytes.empty() ? 256 << 10 : parse_bytes(flags.bytes);
  const std::uint64_t element = element_bytes(shape.dtype);
  if (!flags.count && bytes % element != 0) {
    throw Error{"--bytes " + flags.bytes, fmt::format("not a multiple of an {} element", name_of(shape.dtype))};
  }
  shape.count = flags.count.value_or(bytes / element);
  if (shape.collective == Collective::kBarrier) shape.count = 0;
  return shape;
}

/// What `tensorwire tune` found, unless parameters are given.
void take_tuning(const PlanFlags& flags, Study& study) {
  if (flags.hop_us || flags.gbit) {
    study.cost.hop_us = flags.hop_us.value_or(study.cost.hop_us);
    if (flags.gbit) study.cost.wire_bytes_per_us = *flags.gbit * 1000 / 8;
    study.fabric = "as given";
    return;
  }
  const std::string file = comm::tune_file();
  if (!flags.topology.empty()) {
    const auto tuning = comm::load_tuning(file, flags.topology);
    if (!tuning) throw Error{"--topology " + flags.topology, "not in " + file, "Run `tensorwire tune`"};
    study.cost = tuning->cost;
    study.thresholds = tuning->thresholds;
    study.fabric = flags.topology;
  } else if (const auto found = comm::find_tuning(file, study.shape.ranks)) {
    study.cost = found->second.cost;
    study.thresholds = found->second.thresholds;
    study.fabric = found->first;
  }
}

Algorithm algorithm_of(const PlanFlags& flags, const Shape& shape, const Thresholds& thresholds) {
  if (flags.algorithm != "auto") return named(kAlgorithms, "--algorithm", flags.algorithm);
  if (flags.group_size > 1 && flags.group_size < shape.ranks && shape.collective == Collective::kAllReduce) {
    return Algorithm::kHierarchical;
  }
  return choose(shape, thresholds);
}

WriteSource source_of(const PlanFlags& flags, const Shape& shape, const Thresholds& thresholds) {
  if (flags.source == "auto") return choose_source(shape, thresholds, flags.in_place);
  if (flags.source == "slot") return WriteSource::kSendSlot;
  if (flags.source == "input") return WriteSource::kInput;
  if (flags.source == "input-in-place") return WriteSource::kInputInPlace;
  throw Error{"--source " + flags.source, "there is none of that name", "Use auto, slot, input or input-in-place"};
}

Study study(const PlanFlags& flags) {
  Study result;
  result.shape = shape_of(flags);
  result.build.group_ranks = flags.group_size;
  take_tuning(flags, result);
  result.slot_bytes = parse_bytes(flags.slot_bytes);
  const Algorithm algorithm = algorithm_of(flags, result.shape, result.thresholds);
  result.build.source = source_of(flags, result.shape, result.thresholds);
  // Built first of all: its error says what cannot be.
  const Segmentation cut = split(algorithm, result.shape, result.slot_bytes, result.build);
  for (std::uint32_t rank = 0; rank < result.shape.ranks; ++rank) {
    result.full.programs.push_back(build_segment(result.shape, algorithm, rank, result.build, cut, 0));
    result.last.programs.push_back(build_segment(result.shape, algorithm, rank, result.build, cut, cut.segments - 1));
  }
  result.candidates = price_candidates(result.shape, result.cost, result.slot_bytes, flags.depth, result.build);
  const auto chosen =
      price_candidate(result.shape, algorithm, result.cost, result.slot_bytes, flags.depth, result.build);
  if (!chosen) throw Error{"plan with " + flags.algorithm, "it cannot do that"};
  result.chosen = *chosen;
  return result;
}

CheckOptions check_options(const Study& study, const PlanFlags& flags) {
  CheckOptions options;
  options.depth = options.send_slots = flags.depth;
  options.slot_payload_bytes = study.slot_bytes;
  options.in_place = flags.in_place;
  options.build = study.build;
  if (options.build.block_stride == 0) options.build.block_stride = study.shape.count;
  return options;
}

/// The segments of an operation in the order in which they follow one another, as many as can meet.
Verdict prove(const Study& study, const PlanFlags& flags) {
  std::vector<const Plan*> sequence;
  if (study.chosen.cut.segments > 1)
    sequence.assign(std::min<std::uint64_t>(3, study.chosen.cut.segments - 1), &study.full);
  sequence.push_back(&study.last);
  return check(sequence, check_options(study, flags));
}

std::string fabric_line(const Study& study) {
  const FabricCost& cost = study.cost;
  return fmt::format(
      "{}: {:.0f} Gb/s, {:.2f} us to start, {:.2f} us a hop, {:.2f} us + {:.2f} us of work for a message", study.fabric,
      cost.wire_bytes_per_us * 8 / 1000, cost.start_us, cost.hop_us, cost.message_us, cost.arrival_us);
}

void print_explanation(const Study& study, const PlanFlags& flags) {
  const Shape& shape = study.shape;
  fmt::print("{} of {} x {} ({}), {}, {} ranks: {}\n", name_of(shape.collective), shape.count, name_of(shape.dtype),
             format_bytes(shape.bytes()), name_of(shape.op), shape.ranks, name_of(study.chosen.algorithm));
  if (study.chosen.cut.segments > 1) {
    fmt::print("in {} segments of {} elements, the last of {}; shown is the first\n", study.chosen.cut.segments,
               study.chosen.cut.segment_count, study.chosen.cut.last_count);
  }
  fmt::print("\npredicted ({}):\n", fabric_line(study));
  for (const Candidate& candidate : study.candidates) {
    fmt::print("  {} {:<22} {:>12.2f} us {:>10} messages {:>12} on the wire of a rank\n",
               candidate.algorithm == study.chosen.algorithm ? "*" : " ", name_of(candidate.algorithm),
               candidate.price.us, candidate.price.messages, format_bytes(candidate.price.wire_bytes));
  }
  fmt::print("\noutput of rank {}:\n", flags.rank);
  for (const ResultRange& range : results_of(study.full, flags.rank, check_options(study, flags))) {
    fmt::print("  bytes [{}, {}): {}\n", range.begin, range.end, range.value);
  }
  fmt::print("\n{}", to_string(study.full.programs[flags.rank]));
}

nlohmann::json to_json(const Study& study, const PlanFlags& flags) {
  nlohmann::json document{{"collective", name_of(study.shape.collective)},
                          {"ranks", study.shape.ranks},
                          {"count", study.shape.count},
                          {"dtype", name_of(study.shape.dtype)},
                          {"op", name_of(study.shape.op)},
                          {"algorithm", name_of(study.chosen.algorithm)},
                          {"segments", study.chosen.cut.segments},
                          {"fabric",
                           {{"source", study.fabric},
                            {"gbit_s", study.cost.wire_bytes_per_us * 8 / 1000},
                            {"start_us", study.cost.start_us},
                            {"hop_us", study.cost.hop_us},
                            {"message_us", study.cost.message_us},
                            {"arrival_us", study.cost.arrival_us}}},
                          {"candidates", nlohmann::json::array()},
                          {"output", nlohmann::json::array()}};
  for (const Candidate& candidate : study.candidates) {
    document["candidates"].push_back({{"algorithm", name_of(candidate.algorithm)},
                                      {"predicted_us", candidate.price.us},
                                      {"messages", candidate.price.messages},
                                      {"wire_bytes", candidate.price.wire_bytes}});
  }
  for (const ResultRange& range : results_of(study.full, flags.rank, check_options(study, flags))) {
    document["output"].push_back({{"begin", range.begin}, {"end", range.end}, {"value", range.value}});
  }
  document["plan"] = nlohmann::json::parse(collective::to_json(study.full));
  return document;
}

int run(const PlanFlags& flags) {
  const Study result = study(flags);
  if (flags.rank >= result.shape.ranks) throw Error{fmt::format("--rank {}", flags.rank), "there is no such rank"};
  const bool explain = flags.explain || (!flags.json && !flags.check);
  std::optional<Verdict> verdict;
  if (flags.check) verdict = prove(result, flags);
  if (flags.json) {
    auto document = to_json(result, flags);
    if (verdict) document["check"] = to_string(*verdict);
    fmt::print("{}\n", document.dump(2));
  } else {
    if (explain) print_explanation(result, flags);
    if (verdict) fmt::print("{}\n", to_string(*verdict));
  }
  return !verdict || verdict->proved() ? 0 : 1;
}

}  // namespace

void add_plan(Command& parent, int& status) {
  auto flags = std::make_shared<PlanFlags>();
  Command command = parent.command("plan", "show, price and prove the plan of a collective");
  command
      .option("collective", flags->collective,
              "allreduce, reducescatter, allgather, broadcast, alltoall, sendrecv, barrier")
      .required();
  command.option("--ranks", flags->ranks, "number of ranks").shows_default().between(1, kMaxRanks);
  command.option("--bytes", flags->bytes, "size of the tensor, as 256KiB (default 256KiB)");
  command.option("--count", flags->count, "the same in elements; what it counts is as in NCCL");
  command.option("--dtype", flags->dtype, "fp32, fp16, bf16, int32").shows_default();
  command.option("--op", flags->op, "sum, max, average").shows_default();
  command.option("--algorithm", flags->algorithm, "auto, one-shot, two-shot, ring, hierarchical, direct, tree, ...")
      .shows_default();
  command.option("--root", flags->root, "root of a broadcast, sender of send/recv").shows_default();
  command.option("--peer", flags->peer, "receiver of send/recv").shows_default();
  command.option("--group-size", flags->group_size, "hierarchical: ranks on one host").shows_default().positive();
  command.flag("--in-place", flags->in_place, "input and output share memory");
  command.option("--source", flags->source, "what one-shot writes from: auto, slot, input, input-in-place")
      .shows_default();
  command.option("--slot-bytes", flags->slot_bytes, "payload of a slot").shows_default();
  command.option("--depth", flags->depth, "slots of a directed pair").shows_default().between(2, 64);
  command.option("--hop-us", flags->hop_us, "latency of a hop, instead of what was tuned").positive();
  command.option("--gbit", flags->gbit, "line rate in Gb/s, likewise").positive();
  command.option("--topology", flags->topology, "entry of the tune file (default: the first for so many ranks)");
  command.option("--rank", flags->rank, "the rank whose steps are shown").shows_default();
  command.flag("--explain", flags->explain, "print candidates, bracketing and steps (the default)");
  command.flag("--json", flags->json, "print everything as JSON");
  command.flag("--check", flags->check, "print `proved` or the counter-example; exit 1 on the latter");
  command.runs([flags, &status] { status = run(*flags); });
}

}  // namespace tensorwire::cli
