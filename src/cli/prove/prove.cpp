#include "cli/prove/prove.hpp"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "base/units.hpp"
#include "bootstrap/group.hpp"
#include "cli/prove/burst.hpp"
#include "cli/prove/report.hpp"
#include "cli/prove/switch_dump.hpp"
#include "host/switch_view.hpp"

namespace tensorwire::cli {
namespace {

constexpr std::uint64_t kSmallestBurst = 1 << 20;
constexpr std::uint64_t kLargestBurst = std::uint64_t{16} << 30;

bootstrap::GroupOptions ends_of(const ProveFlags& flags) {
  const auto options = bootstrap::detect_options(bootstrap::process_environment(), flags.group);
  if (options.world_size < 2) {
    throw Error{"watch --prove", "a burst has two ends",
                "Start it on two hosts: --world-size 2 --master-addr HOST, with --rank 0 on HOST and --rank 1 on the "
                "other, or under torchrun, mpirun or srun"};
  }
  return options;
}

verbs::DeviceWish wish_of(const ProveFlags& flags) {
  verbs::DeviceWish wish;
  wish.device = flags.device;
  if (flags.gid_index >= 0) wish.gid_index = flags.gid_index;
  return wish;
}

std::vector<Evidence> share(bootstrap::Group& group, const Evidence& mine) {
  const std::string text = to_text(mine);
  std::vector<Evidence> all;
  for (const auto& bytes : group.all_gather(std::as_bytes(std::span{text}))) all.push_back(evidence_in(bytes));
  return all;
}

/// What the switch counted meanwhile, told by a dump that is newer than the bursts.
std::vector<std::string> switch_lines_of(SwitchDump& dump, const host::SwitchCounters& before, std::uint64_t expected,
                                         const std::string& wait) {
  fmt::print(stderr, "waiting for a newer dump of the switch's counters, for {} at most\n", wait);
  if (!dump.wait_for_newer(parse_duration(wait))) {
    return {"switch queue: unknown (the file of --switch was not written twice within " + wait + " after the bursts)"};
  }
  return host::switch_lines(host::moved(before, dump.counters()), expected);
}

}  // namespace

void ProveFlags::add_to(Command& command) {
  constexpr const char* kHeading = "With --prove";
  command.option("--rank", group.rank, "this end's number, without a launcher").listed_under(kHeading);
  command.option("--world-size", group.world_size, "number of ends").listed_under(kHeading);
  command.option("--master-addr", group.master_address, "host of rank 0").listed_under(kHeading);
  command.option("--master-port", group.master_port, "TCP port of rank 0").listed_under(kHeading);
  command.option("--device", device, "RDMA device (default: chosen, and said why)").listed_under(kHeading);
  command.option("--gid-index", gid_index, "GID table index").non_negative().listed_under(kHeading);
  command.option("--dscp", dscp, "of the burst's packets").shows_default().between(0, 63).listed_under(kHeading);
  command.option("--burst", burst, "data that each end sends").shows_default().listed_under(kHeading);
  command.option("--switch-wait", switch_wait, "how long to wait for a newer --switch file")
      .shows_default()
      .listed_under(kHeading);
}

int prove(const ProveFlags& flags, Ps idle, const std::string& switch_file, bool as_json) {
  const std::uint64_t bytes = parse_bytes(flags.burst) / 4 * 4;
  if (bytes < kSmallestBurst || bytes > kLargestBurst) {
    throw Error{"--burst " + flags.burst, "not between 1MiB and 16GiB"};
  }
  const auto options = ends_of(flags);
  std::optional<SwitchDump> dump;
  if (!switch_file.empty() && options.rank == 0) dump.emplace(switch_file);
  const auto device = verbs::Context::open(wish_of(flags));  // what is wrong with it is told before anybody waits
  const auto group = bootstrap::Group::join(options);
  const host::SwitchCounters before = dump ? dump->counters() : host::SwitchCounters{};
  std::vector<Evidence> ends;
  try {
    ends = share(*group, send_bursts(*group, *device, {flags.dscp, bytes, idle}));
    group->leave();
  } catch (const Error& error) {
    group->abort(error.what());
    throw;
  }
  const auto bursts = judge(ends, bytes, flags.dscp);
  if (options.rank == 0) {
    const auto lines =
        dump ? switch_lines_of(*dump, before, bursts.front().expected, flags.switch_wait) : std::vector<std::string>{};
    fmt::print("{}", as_json ? proof_json(bursts, lines).dump() + "\n" : proof_text(bursts, lines));
  }
  return exit_status(bursts);
}

}  // namespace tensorwire::cli
