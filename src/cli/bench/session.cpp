#include "cli/bench/session.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/env.hpp"
#include "base/error.hpp"
#include "bootstrap/options.hpp"
#include "cli/bench/local_launch.hpp"
#include "cli/program.hpp"
#include "comm/wait_policy.hpp"
#include "verbs/context.hpp"

namespace tensorwire::cli {

namespace {

using collective::DType;

constexpr std::uint64_t kAnyBytes = ~std::uint64_t{0};

DType dtype_of(const std::string& text) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    if (collective::name_of(dtype) == text) return dtype;
  }
  throw Error{"--dtype " + text, "no such element type", "Use fp16, bf16 or fp32"};
}

collective::Thresholds thresholds_of(const std::string& algorithm) {
  if (algorithm == "auto") return {};
  if (algorithm == "one-shot") return {kAnyBytes, kAnyBytes};
  if (algorithm == "two-shot") return {0, 0};
  throw Error{"--algorithm " + algorithm, "no such algorithm", "Use auto, one-shot or two-shot"};
}

int local_ranks(const SessionFlags& flags) {
  const int ranks = flags.ranks != 0 ? flags.ranks : static_cast<int>(std::max(comm::usable_cores(), 2U));
  if (ranks < 1 || ranks > 64) throw Error{"--ranks " + std::to_string(ranks), "not between 1 and 64"};
  return ranks;
}

void check_writable(const std::string& path) {
  if (path.empty() || path.starts_with("/dev/")) return;
  const std::string folder = path.find('/') == std::string::npos ? "." : path.substr(0, path.rfind('/') + 1);
  if (access(folder.c_str(), W_OK) != 0)
    throw system_error("write " + path, errno, "Give a file in a folder that exists and is writable");
}

verbs::DeviceWish device_wish(const SessionFlags& flags) {
  verbs::DeviceWish wish;
  wish.device = flags.device;
  if (flags.gid_index >= 0) wish.gid_index = flags.gid_index;
  return wish;
}

/// The same-host link is off while a capture or faults ask for packets; a NIC has no such link at all.
std::vector<std::string> paths_of(const SessionFlags& flags, bool soft, std::vector<std::string>& notes) {
  std::vector<std::string> paths = flags.paths.empty() ? default_paths() : flags.paths;
  if (!soft) {
    std::erase(paths, "local");
    std::replace(paths.begin(), paths.end(), std::string{"roce"}, std::string{"rdma"});
    return paths;
  }
  const bool faults = env::get("TENSORWIRE_FAULTS").has_value();
  if ((faults || !flags.pcap.empty()) && std::erase(paths, "local") > 0) {
    notes.push_back(fmt::format("no same-host link: {} asks for packets", faults ? "TENSORWIRE_FAULTS" : "--pcap"));
  }
  return paths;
}

Session open_session(const SessionFlags& flags) {
  Session session;
  session.dtype = dtype_of(flags.dtype);
  bootstrap::GroupOptions group = bootstrap::detect_options(bootstrap::process_environment(), flags.group);
  if (flags.timeout_s > 0) group.timeout = static_cast<Ps>(flags.timeout_s * static_cast<double>(kSecond));
  if (!flags.pcap.empty() && group.rank == 0) setenv("TENSORWIRE_PCAP", flags.pcap.c_str(), 1);

  const auto context = verbs::Context::open(device_wish(flags));  // a wrong device or GID is told before anybody waits
  session.paths = paths_of(flags, context->is_soft(), session.notes);
  session.group = bootstrap::Group::join(group);

  session.comm.device = flags.device;
  session.comm.gid_index = flags.gid_index;
  session.comm.thresholds = thresholds_of(flags.algorithm);
  session.comm.wait = comm::choose_wait_policy(comm::usable_cores(), static_cast<unsigned>(group.local_world_size));
  return session;
}

}  // namespace

void SessionFlags::add_to(Command& command) {
  command.option("--ranks", ranks, "local ranks to start, as processes (default: one per core, at least 2)");
  command.option("--device", device, "RDMA device: soft, soft0, mlx5_0, mlx5_0:1 (default: chosen, and said why)");
  command.option("--gid-index", gid_index, "GID table index (default: the routable RoCE v2 entry)").non_negative();
  command.option("--dtype", dtype, "element type: fp16, bf16, fp32").shows_default();
  command.option("--algorithm", algorithm, "auto, one-shot, two-shot").shows_default();
  command
      .option("--paths", paths, "paths to compare: local,roce,tcp,udp-floor (default: all of these), mapped,tcp-bare")
      .separated_by(',');
  command.option("--timeout", timeout_s, "seconds to wait for the other ranks").positive();
  command.option("--pcap", pcap, "write rank 0's RoCEv2 packets to this capture file");
  command.option("--json", json, "write the results to this file");
  command.option("--rank", group.rank, "this process's rank, without a launcher").listed_under("Without a launcher");
  command.option("--world-size", group.world_size, "number of ranks").listed_under("Without a launcher");
  command.option("--master-addr", group.master_address, "host of rank 0").listed_under("Without a launcher");
  command.option("--master-port", group.master_port, "TCP port of rank 0").listed_under("Without a launcher");
}

int run_session(const SessionFlags& flags, const std::function<int(Session&)>& body) {
  (void)dtype_of(flags.dtype);
  (void)thresholds_of(flags.algorithm);
  check_writable(flags.json);
  check_writable(flags.pcap);
  const bool is_rank = flags.group.rank.has_value() || bootstrap::under_launcher(bootstrap::process_environment());
  if (!is_rank) {
    // Told here once and not by every rank.
    (void)verbs::Context::open(device_wish(flags));
    return run_local_ranks(local_ranks(flags), program_arguments());
  }
  Session session = open_session(flags);
  try {
    const int status = body(session);
    session.group->leave();
    return status;
  } catch (const Error& error) {
    session.group->abort(error.what());
    throw;
  }
}

}  // namespace tensorwire::cli
