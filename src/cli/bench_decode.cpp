// `tensorwire bench decode`: the all-reduces of an LLM's decode tokens, over every path side by side.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/time.hpp"
#include "cli/bench/decode_run.hpp"
#include "cli/bench/presets.hpp"
#include "cli/bench/report.hpp"
#include "cli/bench/session.hpp"
#include "cli/program.hpp"

namespace tensorwire::cli {

namespace {

struct DecodeFlags {
  SessionFlags session;
  std::string model = "llama-3.1-70b";
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;
  std::uint32_t batch = 16;
  std::vector<double> gaps_us{75, 0};
  std::uint32_t tokens = 10;
  std::uint32_t verify_tokens = 1;
  std::int64_t plant_wrong_slot = -1;
  std::string started_file;
  bool on_gpu = false;
};

/// By the program beside this one that knows GPUs, which is not in every build. Does not return.
int decode_on_gpu(const std::string& json) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").replace_filename("gpu_decode");
  std::vector<const char*> arguments{program.c_str()};
  if (!json.empty()) arguments.insert(arguments.end(), {"--json", json.c_str()});
  arguments.push_back(nullptr);
  ::execv(program.c_str(), const_cast<char* const*>(arguments.data()));
  throw Error{"start " + program, std::strerror(errno), "./dev bench --gpu builds it where nvcc is"};
}

DecodePlan plan_of(const DecodeFlags& flags) {
  const ModelPreset& preset = find_preset(flags.model);
  const bool custom = flags.layers != 0 || flags.hidden != 0;
  const std::uint32_t layers = flags.layers != 0 ? flags.layers : preset.layers;
  const std::uint32_t hidden = flags.hidden != 0 ? flags.hidden : preset.hidden;
  DecodePlan plan;
  plan.model = custom ? fmt::format("{} layers, hidden {}", layers, hidden) : flags.model;
  plan.all_reduces_per_token = layers * kAllReducesPerLayer;
  plan.count = std::size_t{flags.batch} * hidden;
  for (const double gap : flags.gaps_us) plan.gaps.push_back(std::llround(gap * static_cast<double>(kMicrosecond)));
  plan.tokens = flags.tokens;
  plan.verify_tokens = flags.verify_tokens;
  plan.plant_wrong_slot = flags.plant_wrong_slot;
  plan.started_file = flags.started_file;
  return plan;
}

int decode(const DecodeFlags& flags) {
  if (flags.on_gpu) return decode_on_gpu(flags.session.json);
  const DecodePlan plan = plan_of(flags);
  return run_session(flags.session, [&](Session& session) {
    const DecodeReport report = run_decode(session, plan);
    if (session.group->rank() == 0) {
      fmt::print("{}", render_table(report));
      if (!flags.session.json.empty()) write_file(flags.session.json, render_json(report).dump(2) + "\n");
    }
    return report.mismatches == 0 ? 0 : 1;
  });
}

}  // namespace

void add_bench_decode(Command& parent, int& status) {
  auto flags = std::make_shared<DecodeFlags>();
  Command command = parent.command("decode", "the all-reduces of an LLM's decode: 160 x 256 KiB a token by default");
  command.option("--model", flags->model, "llama-3.1-70b, llama-3.1-8b, mixtral-8x22b").shows_default();
  command.option("--layers", flags->layers, "layers, instead of the model's").between(1, 10000);
  command.option("--hidden", flags->hidden, "hidden size in elements, instead of the model's").between(1, 1 << 24);
  command.option("--batch", flags->batch, "sequences decoded together").shows_default().between(1, 65536);
  command.option("--gap-us", flags->gaps_us, "compute time between two all-reduces, microseconds; several: 75,0")
      .separated_by(',')
      .shows_default()
      .non_negative();
  command.option("--tokens", flags->tokens, "timed tokens for each path and gap").shows_default().between(1, 1'000'000);
  command.option("--verify-tokens", flags->verify_tokens, "tokens before them whose results are held against fp64")
      .shows_default();
  command
      .option("--plant-wrong-slot", flags->plant_wrong_slot,
              "plant a bug: in this operation of each token one rank writes to a wrong slot")
      .listed_under("For tests");
  command.option("--started-file", flags->started_file, "create this file when the first timed token begins")
      .listed_under("For tests");
  command.flag("--gpu", flags->on_gpu,
               "tokens of Llama 8B and 70B on this machine's GPUs instead: fused, not fused, NCCL, no communication");
  flags->session.add_to(command);
  command.runs([flags, &status] { status = decode(*flags); });
}

}  // namespace tensorwire::cli
