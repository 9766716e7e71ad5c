// `tensorwire first-contact`: everything that a first look at a cluster should see, in one run and one archive. Its
// steps are the other files of this folder; a step that fails is recorded, and the next one goes on.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "base/units.hpp"
#include "cli/bench/progress_bar.hpp"
#include "cli/first_contact/gpu_step.hpp"
#include "cli/first_contact/gpudirect_part.hpp"
#include "cli/first_contact/host_step.hpp"
#include "cli/first_contact/kit.hpp"
#include "cli/first_contact/nccl_part.hpp"
#include "cli/first_contact/outcome.hpp"
#include "cli/first_contact/sweep_step.hpp"
#include "cli/interrupt.hpp"
#include "cli/mesh/host_part.hpp"
#include "cli/mesh/launch.hpp"
#include "cli/mesh/report.hpp"
#include "cli/mesh/survey.hpp"
#include "cli/program.hpp"

namespace tensorwire::cli {
namespace {

using Json = nlohmann::json;

constexpr int kNoContact = 2;  ///< it could not be run at all

constexpr const char* kReadMe = R"(What `tensorwire first-contact` found on a cluster (docs/first-contact.md).

summary.json              what was run, how long it took, what became of each step
hosts/NAME/doctor.txt     the doctor's verdict of that host; doctor.json is the same for programs
hosts/NAME/tensorwire-host.txt   the recording: `tensorwire doctor --root hosts/NAME` gives the verdict again
compare.txt, .json        what the hosts disagree about
mesh.txt, .json           latency and bandwidth between all hosts, and who is out of the ordinary
gpudirect.json            each GPU with each NIC: what registering says, and whether bytes arrived
allreduce.txt, .json      all-reduce by this library over host memory, beside the same plan over TCP
nccl.json                 all-reduce by NCCL over memory of GPUs, or why not
)";

struct ContactFlags {
  HostsFlags hosts;
  RailWish rails;
  int gid_index = -1;
  double seconds = SurveyPlan{}.seconds;
  std::string output = "first-contact.tar.gz";
  std::string max_bytes = "16MiB";
  bool real_names = false;
  std::string part;
};

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

/// Rank 0's way through the steps.
class Contact {
 public:
  Contact(Star& star, const ContactFlags& flags, const bootstrap::GroupOptions& options, Kit& kit)
      : star_(star), flags_(flags), options_(options), kit_(kit) {}

  int run() {
    if (!flags_.real_names) take_other_names();
    step("doctor", [&] { return record_hosts(star_, key_, kit_); });
    step("mesh", [&] { return measure(); });
    step("gpudirect", [&] { return examine_gpus(star_, kit_); });
    step("all-reduce", [&] { return sweep_all_reduce(star_, {options_.master_address, flags_.max_bytes}, kit_); });
    step("NCCL", [&] { return sweep_nccl(star_, {options_.master_address, flags_.max_bytes}, kit_); });
    kit_.add("README.txt", kReadMe, Kit::Addresses::kDone);
    kit_.add("summary.json", summary().dump(2) + "\n");
    fmt::print("{}\n", kit_.pack());
    return star_.interrupted() || any_bad_ ? 1 : 0;
  }

 private:
  /// The names are told here alone.
  void take_other_names() {
    key_ = fmt::format("{:016x}{:016x}", entropy64(), entropy64());
    std::vector<std::string> hosts;
    for (int rank = 0; rank < star_.size(); ++rank) hosts.push_back(star_.host(rank));
    kit_.use_pseudonyms(names_for(hosts), key_);
    for (const auto& [name, other] : kit_.names()) fmt::print("  {} is {} in the archive\n", name, other);
  }

  template <class Body>
  void step(const char* name, Body body) {
    ++number_;
    const Ps started = monotonic_now();
    Outcome outcome{Outcome::Kind::kFailed, "interrupted before it began"};
    if (!star_.interrupted()) {
      say_what_runs(name);
      try {
        outcome = body();
      } catch (const Error& error) {
        outcome = {Outcome::Kind::kFailed, error.what()};
      } catch (const Json::exception& error) {
        outcome = {Outcome::Kind::kFailed, fmt::format("a rank's answer makes no sense: {}", error.what())};
      }
    }
    const double seconds = static_cast<double>(monotonic_now() - started) / static_cast<double>(kSecond);
    fmt::print("{}/{} {}: {} ({:.1f} s): {}\n", number_, kSteps, name, outcome.word(), seconds, outcome.line);
    std::fflush(stdout);
    any_bad_ |= outcome.kind == Outcome::Kind::kBad || outcome.kind == Outcome::Kind::kFailed;
    steps_.push_back({{"name", name}, {"outcome", outcome.word()}, {"seconds", seconds}, {"line", outcome.line}});
  }

  void say_what_runs(const char* name) const {
    if (isatty(STDERR_FILENO) != 1) return;
    fmt::print(stderr, "\r\033[K{}/{} {} ...\r", number_, kSteps, name);
    std::fflush(stderr);
  }

  Outcome measure() {
    SurveyPlan plan;
    plan.seconds = flags_.seconds;
    std::optional<ProgressBar> bar;
    const Survey survey = survey_mesh(star_, plan, [&](std::uint64_t done, std::uint64_t all) {
      if (done == 0) {
        bar.emplace(fmt::format("{}/{} mesh", number_, kSteps), all, true);
      } else {
        bar->advance();
      }
    });
    bar.reset();
    const std::string text = survey_text(survey, false);
    kit_.add("mesh.txt", text);
    kit_.add("mesh.json", survey_json(survey).dump(2) + "\n");
    fmt::print("{}", isatty(STDOUT_FILENO) == 1 ? survey_text(survey, true) : text);
    const MeshUsual& usual = survey.verdict.usual;
    const bool fine = exit_status(survey) == 0;
    return {fine ? Outcome::Kind::kFine : Outcome::Kind::kBad,
            fmt::format("usual: {:.1f} us, {:.3f} GB/s; {} findings", usual.latency_us, usual.bandwidth_gb_s,
                        survey.verdict.findings.size())};
  }

  [[nodiscard]] Json summary() const {
    Json ranks = Json::array();
    for (int rank = 0; rank < star_.size(); ++rank) {
      ranks.push_back({{"rank", rank}, {"host", star_.host(rank)}, {"lost", star_.lost(rank)}});
    }
    utsname kernel{};
    uname(&kernel);
    return {{"version", 1},
            {"tensorwire", TENSORWIRE_VERSION},
            {"started", started_},
            {"ended", utc_now()},
            {"launcher", options_.launcher},
            {"kernel", kernel.release},
            {"interrupted", star_.interrupted()},
            {"pseudonyms", !flags_.real_names},
            {"ranks", std::move(ranks)},
            {"steps", steps_}};
  }

  static constexpr int kSteps = 5;

  Star& star_;
  const ContactFlags& flags_;
  const bootstrap::GroupOptions& options_;
  Kit& kit_;
  std::string key_;
  std::string started_ = utc_now();
  Json steps_ = Json::array();
  int number_ = 0;
  bool any_bad_ = false;
};

/// What a rank answers: the mesh's requests and those of the other steps.
class ContactPart {
 public:
  ContactPart(const bootstrap::GroupOptions& options, const ContactFlags& flags)
      : flags_(flags), mesh_(options, flags.rails) {}

  Json handle(const Json& request) {
    const auto op = request.value("op", "");
    if (op == "record") return record_host(request);
    if (op == "gpudirect") return examine_gpudirect(flags_.rails, interrupt_flag());
    if (op == "sweep") return run_sweep_rank(request, device_, interrupt_flag());
    Json answer = mesh_.handle(request);
    if (op == "introduce") device_ = first_usable(answer);
    return answer;
  }

 private:
  static std::string first_usable(const Json& introduction) {
    for (const Json& end : introduction.at("ends")) {
      if (end.at("problem").get<std::string>().empty()) return end.at("device").get<std::string>();
    }
    return {};
  }

  const ContactFlags& flags_;
  HostPart mesh_;
  Interruptible interruptible_;
  std::string device_;
};

void check_most_bytes(const std::string& text) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
  const std::uint64_t bytes = parse_bytes(text);
  if (bytes < 1024 || bytes > kMost) throw Error{"--max-bytes " + text, "not between 1KiB and 1GiB"};
}

int run_part(const ContactFlags& flags) {
  if (flags.part == "gpudirect") return print_gpudirect(flags.rails);
  if (flags.part == "nccl") return print_nccl_sweep(parse_bytes(flags.max_bytes));
  throw Error{"--part " + flags.part, "there is no such part"};
}

int make_contact(ContactFlags& flags) {
  if (flags.gid_index >= 0) flags.rails.gid_index = flags.gid_index;
  if (!flags.part.empty()) return run_part(flags);
  check_most_bytes(flags.max_bytes);  // told before anything is started
  int status = 0;
  if (started_local_ranks(flags.hosts, status)) return status;
  const bootstrap::GroupOptions options = ranks_of(flags.hosts, "first-contact");
  std::optional<Kit> kit;
  if (options.rank == 0) kit.emplace(flags.output);  // what is wrong with it is told before anybody waits
  ContactPart part{options, flags};
  return run_star(
      options, [&](const Json& request) { return part.handle(request); },
      [&](Star& star) {
        return Contact{star, flags, options, *kit}.run();
      });
}

}  // namespace

void add_first_contact(Command& parent, int& status) {
  Command command = parent.command(
      "first-contact", "doctor, mesh, GPUDirect and all-reduce on all hosts of a cluster, packed into one archive");
  auto flags = std::make_shared<ContactFlags>();
  command.option("-o,--output", flags->output, "the archive").shows_default();
  command.flag("--real-names", flags->real_names, "keep names and addresses of hosts in the archive");
  command.option("--devices", flags->rails.devices, "RDMA devices of each host, a rail each (default: all)")
      .separated_by(',');
  command.option("--gid-index", flags->gid_index, "GID table index (default: the routable RoCE v2 entry)")
      .non_negative();
  command.option("--seconds", flags->seconds, "that each latency and each bandwidth of the mesh is measured for")
      .shows_default()
      .positive();
  command.option("--max-bytes", flags->max_bytes, "largest tensor of the all-reduces").shows_default();
  command.option("--part", flags->part, "a part that is run as a process of its own").listed_under("");
  flags->hosts.add_to(command);
  command.runs([flags, &status] {
    try {
      status = make_contact(*flags);
    } catch (const Error& error) {
      std::fprintf(stderr, "tensorwire: %s\n", error.what());
      status = kNoContact;
    }
  });
}

}  // namespace tensorwire::cli
