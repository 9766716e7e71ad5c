// NCCL: settings that switch the fast path off, and what its log says.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/error.hpp"
#include "host/parse/text.hpp"
#include "host/rules/groups.hpp"
#include "host/rules/queries.hpp"

namespace tensorwire::host {

namespace {

std::string log_text(const NcclLog& log, const LogLine& line) {
  return fmt::format("{}:{}: {}", log.path, line.number, line.text);
}

std::vector<std::string> log_text(const NcclLog& log, const std::vector<LogLine>& lines) {
  std::vector<std::string> seen;
  for (const LogLine& line : lines) {
    if (seen.size() < 3) seen.push_back(log_text(log, line));
  }
  return seen;
}

void disabled(const Host& host, Judgement& judgement) {
  const Setting* setting = host.process.setting("NCCL_IB_DISABLE");
  if (setting == nullptr || c_number(setting->value).value_or(0) == 0 || roce_ports(host).empty()) return;
  judgement.found(Confidence::kCertain, "NCCL_IB_DISABLE",
                  "NCCL is told not to use RDMA: it works over sockets, and slowly", "unset NCCL_IB_DISABLE",
                  {host::shown("NCCL_IB_DISABLE", *setting)});
}

void ignores_mismatch(const Host& host, Judgement& judgement) {
  const Setting* setting = host.process.setting("NCCL_IGNORE_NET_MISMATCH");
  if (setting == nullptr || c_number(setting->value).value_or(0) == 0) return;
  judgement.found(Confidence::kLikely, "NCCL_IGNORE_NET_MISMATCH",
                  "ranks that see different numbers of devices go on instead of failing, and may hang without a word",
                  "unset NCCL_IGNORE_NET_MISMATCH", {host::shown("NCCL_IGNORE_NET_MISMATCH", *setting)});
}

void left_in_file(const Host& host, Judgement& judgement) {
  std::vector<std::string> seen;
  for (const auto& [name, setting] : host.process.settings.value_or({})) {
    if (setting.where != "environment" && (name.starts_with("NCCL_IB_") || name.starts_with("UCX_")))
      seen.push_back(host::shown(name, setting));
  }
  if (seen.empty()) return;
  judgement.found(
      Confidence::kPossible, "nccl.conf, ucx.conf",
      "a file of the host or image changes how NCCL or UCX use RDMA, which nobody sees in a job's environment",
      "see that these lines are wanted here, on all hosts alike", seen);
}

/// "2.28.9" as 22809, as NCCL counts versions.
int version_number(std::string_view version) {
  const auto parts = split(version, '.');
  if (parts.size() < 3) return 0;
  return leading_number(parts[0]).value_or(0) * 10'000 + leading_number(parts[1]).value_or(0) * 100 +
         leading_number(parts[2]).value_or(0);
}

void gin_crash(const Host& host, Judgement& judgement) {
  if (!host.nccl_log || version_number(host.nccl_log->version) != 22'809 ||
      host.process.setting("NCCL_GIN_TYPE") != nullptr)
    return;
  for (const PortView& view : roce_ports(host)) {
    if (view.device->family == NicFamily::kMlx5) continue;
    judgement.found(
        Confidence::kLikely, view.device->name,
        "NCCL 2.28.9 takes every RDMA device for an mlx5 when it looks for GPU-initiated networking, and crashes "
        "at start on others",
        "NCCL_GIN_TYPE=0, or another NCCL version",
        {fmt::format("{}: NCCL version 2.28.9", host.nccl_log->path),
         fmt::format("{}: {}", view.device->driver.where(), view.device->driver.value_or("no mlx5 driver"))});
  }
}

void fell_back(const Host& host, Judgement& judgement) {
  if (!host.nccl_log) return;
  const NcclLog& log = *host.nccl_log;
  std::vector<std::string> seen = log_text(log, log.without_library);
  for (std::string& line : log_text(log, log.without_device)) seen.push_back(std::move(line));
  for (const LogLine& line : log.networks) {
    if (line.text.find("Using network Socket") != std::string::npos && seen.size() < 5)
      seen.push_back(log_text(log, line));
  }
  if (seen.empty()) return;
  judgement.found(Confidence::kCertain, "NCCL",
                  !log.without_library.empty() ? "NCCL found no libibverbs and uses sockets"
                                               : "NCCL uses sockets: it found no RDMA device that it may use",
                  !log.without_library.empty()
                      ? "install libibverbs1 and the provider library (ibverbs-providers) into the image"
                      : "look at the findings about devices and their nodes; unset NCCL_IB_DISABLE",
                  seen);
}

void log_of_foreign_abi(const Host& host, Judgement& judgement) {
  if (!host.nccl_log || host.nccl_log->wrong_abi.empty()) return;
  judgement.found(
      Confidence::kCertain, "libibverbs",
      "the provider library does not know the driver's interface: an out-of-tree driver beside the distribution's "
      "rdma-core",
      "put the vendor's provider library of this driver's version into the image",
      log_text(*host.nccl_log, host.nccl_log->wrong_abi));
}

void gdr_off(const Host& host, Judgement& judgement) {
  if (!host.nccl_log || host.nccl_log->gdr_disabled.empty()) return;
  if (std::ranges::any_of(host.nccl_log->channels, &NetChannel::gdr)) return;
  judgement.found(
      Confidence::kCertain, "GPUDirect", "NCCL says that it does not use GPUDirect: data is copied through host memory",
      "look at the findings about GPUDirect; a distance in the line means that GPU and NIC are too far apart",
      log_text(*host.nccl_log, host.nccl_log->gdr_disabled));
}

struct Meaning {
  int code;
  std::string_view cause;
  std::string_view remedy;
};

constexpr std::array kConnectErrors = {
    Meaning{
        ETIMEDOUT,
        "the peer's address cannot be reached from this one (link-local GID, other subnet without a route, or an "
        "unanswered ARP request)",
        "compare the subnets of both GIDs in the line; see findings about GIDs and subnets; NCCL_CROSS_NIC=0 on rails"},
    Meaning{ENODATA, "the GID index that was asked for is empty on this device", "unset NCCL_IB_GID_INDEX"},
    Meaning{ENODEV, "the GID belongs to an interface of another network namespace",
            "give the interface to the container"},
    Meaning{EINVAL,
            "the two ends do not fit together: RoCE v1 and v2, IPv4 and IPv6, InfiniBand and Ethernet, or an MTU above "
            "the port's",
            "`tensorwire doctor compare` with a recording of each host"},
    Meaning{ENETUNREACH, "there is no route to the peer's address", "ip route get PEER"},
};

void connect_failed(const Host& host, Judgement& judgement) {
  if (!host.nccl_log || host.nccl_log->connects.empty()) return;
  const FailedConnect& first = host.nccl_log->connects.front();
  const auto meaning = std::ranges::find(kConnectErrors, first.error, &Meaning::code);
  if (meaning == kConnectErrors.end()) return;
  judgement.found(Confidence::kLikely, "ibv_modify_qp", std::string{meaning->cause}, std::string{meaning->remedy},
                  {log_text(*host.nccl_log, first.line), "errno: " + errno_text(first.error)});
}

constexpr int kFlushed = 5;

constexpr std::array kStatuses = {
    Meaning{4,
            "the NIC was refused access to local memory: with GPUDirect that is ACS, the IOMMU or a peer memory module "
            "that "
            "does not fit the driver",
            "see findings about GPUDirect; NCCL_NET_GDR_LEVEL=LOC proves it (slowly)"},
    Meaning{9, "the peer refused the request: with NCCL 2.20 and later most often a difference in MTU",
            "ip link show, at both ends"},
    Meaning{10, "the peer's memory was not registered for this access", "the same NCCL version on all ranks"},
    Meaning{12,
            "no acknowledgement came: at once it is the address, the route, the VLAN or the MTU; later it is loss, a "
            "link that "
            "flaps, or packets outside the lossless class",
            "see findings about GIDs, MTU and QoS on both hosts"},
    Meaning{13, "the receiver had no buffer ready for too long: the peer's process hangs", "look at the peer"},
};

void completion_failed(const Host& host, Judgement& judgement) {
  if (!host.nccl_log) return;
  // Flushes follow the error that matters; where there are only flushes it is in another rank's log.
  const auto& all = host.nccl_log->completions;
  const auto first =
      std::ranges::find_if(all, [](const FailedCompletion& failed) { return failed.status != kFlushed; });
  if (first == all.end()) return;
  const auto meaning = std::ranges::find(kStatuses, first->status, &Meaning::code);
  if (meaning == kStatuses.end()) return;
  judgement.found(Confidence::kLikely, "work completion", fmt::format("status {}: {}", first->status, meaning->cause),
                  std::string{meaning->remedy}, {log_text(*host.nccl_log, first->line)});
}

void flushes_only(const Host& host, Judgement& judgement) {
  if (!host.nccl_log || host.nccl_log->completions.empty()) return;
  const auto& all = host.nccl_log->completions;
  if (std::ranges::any_of(all, [](const FailedCompletion& failed) { return failed.status != kFlushed; })) return;
  judgement.found(Confidence::kCertain, "work completion",
                  "all failures here are flushes: they follow an earlier error, which is in another rank's log",
                  "look for the first line of any rank with another status",
                  {log_text(*host.nccl_log, all.front().line)});
}

void registration_failed(const Host& host, Judgement& judgement) {
  if (!host.nccl_log || host.nccl_log->registration.empty()) return;
  const LogLine& line = host.nccl_log->registration.front();
  const auto says = [&line](std::string_view words) { return line.text.find(words) != std::string::npos; };
  const bool memory = says("Cannot allocate memory");
  const bool dmabuf = says("dmabuf") || says("Operation not supported");
  judgement.found(memory || dmabuf ? Confidence::kLikely : Confidence::kPossible, "memory registration",
                  memory   ? "memory could not be registered: the limit of locked memory, else BAR 1 of the GPU"
                  : dmabuf ? "the RDMA driver cannot register DMA-BUFs: kernel before 5.12, or an OFED too old"
                           : "GPU memory could not be registered: no peer memory module, or a GPU that cannot",
                  memory   ? "ulimit -l unlimited for the job; see findings about the process and about GPUDirect"
                  : dmabuf ? "NCCL_DMABUF_ENABLE=0 with nvidia-peermem, or a newer driver"
                           : "see findings about GPUDirect",
                  {log_text(*host.nccl_log, line)});
}

void port_errors(const Host& host, Judgement& judgement) {
  if (!host.nccl_log || host.nccl_log->port_errors.empty()) return;
  judgement.found(Confidence::kCertain, "link", "a port went down while the job ran",
                  "cable, transceiver, switch port; something that set PFC or lldpad at that time",
                  log_text(*host.nccl_log, host.nccl_log->port_errors));
}

void bootstrap_failed(const Host& host, Judgement& judgement) {
  if (!host.nccl_log || (host.nccl_log->refused.empty() && host.nccl_log->loopback.empty())) return;
  const bool loopback = !host.nccl_log->loopback.empty();
  judgement.found(
      loopback ? Confidence::kCertain : Confidence::kLikely, "bootstrap",
      loopback ? "NCCL meets over the loopback interface, which other hosts cannot reach"
               : "the ranks cannot meet over TCP: a wrong interface, or a firewall that rejects",
      fmt::format("NCCL_SOCKET_IFNAME={} (the interface of the default route), on all hosts, also where `ray "
                  "start` runs; and no firewall between them",
                  meeting_interface(host)),
      log_text(*host.nccl_log, loopback ? host.nccl_log->loopback : host.nccl_log->refused));
}

void access_violation(const Host& host, Judgement& judgement) {
  if (!host.nccl_log || host.nccl_log->violations.empty()) return;
  const int version = version_number(host.nccl_log->version);
  judgement.found(
      version >= 22'000 ? Confidence::kLikely : Confidence::kPossible, "work queue",
      "the NIC refused an access to local memory: since NCCL 2.20 that is most often a difference in MTU between "
      "the two ends",
      "ip link show, at both ends; `tensorwire doctor compare` with a recording of each",
      log_text(*host.nccl_log, host.nccl_log->violations));
}

/// The first entry of a table that is empty although one behind it is in use.
std::optional<std::string> hole_in(const RdmaPort& port) {
  if (!port.gids || port.gids->empty() || port.empty_gids.empty()) return std::nullopt;
  const EmptyGid& hole = port.empty_gids.front();
  if (hole.index > port.gids->back().index) return std::nullopt;
  return fmt::format("{}/gids/{}: empty, its type: {}", port.path, hole.index,
                     hole.version ? "readable" : hole.version.why());
}

void sparse_table(const Host& host, Judgement& judgement) {
  if (!host.nccl_log || host.nccl_log->sparse_table.empty()) return;
  std::vector<std::string> seen = log_text(*host.nccl_log, host.nccl_log->sparse_table);
  std::string index = "the usable entry";
  for (const PortView& view : roce_ports(host)) {
    if (auto hole = hole_in(*view.port)) seen.push_back(*std::move(hole));
    const Gid* best = view.port->gids ? best_gid(*view.port) : nullptr;
    if (best != nullptr) index = std::to_string(best->index);
  }
  judgement.found(
      Confidence::kLikely, "GID table",
      "this NCCL stumbles over an entry of the GID table whose type cannot be read: an empty one, or one of "
      "another network namespace, between entries that are in use",
      fmt::format("a newer NCCL; until then NCCL_IB_GID_INDEX={}", index), seen);
}

void lost_clearance(const Host& host, Judgement& judgement) {
  if (!host.nccl_log || host.nccl_log->lost_clearance.empty()) return;
  judgement.found(
      Confidence::kLikely, "NCCL",
      "NCCL lost track of a request of its own: the library, not the fabric, unless counters on this host say "
      "otherwise",
      "another NCCL version; NCCL_IB_RESILIENCY_PORT_FAILOVER=0 where it is set",
      log_text(*host.nccl_log, host.nccl_log->lost_clearance));
}

// clang-format off
constexpr std::array kNcclRules = {
    Rule{"TW-NCCL-001", Severity::kError, "RDMA is switched off", "Left over from a search for an error, most of the time.", disabled},
    Rule{"TW-NCCL-002", Severity::kWarning, "differences between ranks are ignored",
         "A rank that could not open a device goes on with fewer than its peers expect: GPUs are busy, draw little power, and "
         "nothing moves.", ignores_mismatch},
    Rule{"TW-NCCL-003", Severity::kInfo, "settings in a file",
         "NCCL reads /etc/nccl.conf and ~/.nccl.conf (or NCCL_CONF_FILE), UCX ucx.conf in /etc/ucx, ~ and UCX_CONFIG_DIR. Images "
         "come with experiments in them.", left_in_file},
    Rule{"TW-NCCL-004", Severity::kError, "NCCL 2.28.9 on a NIC that is not mlx5",
         "That version's search for GPU-initiated networking does not check the device's kind.", gin_crash},
    Rule{"TW-NCCL-010", Severity::kError, "the job runs over sockets", "One line of the log says so, and the job works.", fell_back},
    Rule{"TW-NCCL-011", Severity::kError, "libibverbs refused the driver's interface",
         "`rdma link` shows the device ACTIVE, and programs find none.", log_of_foreign_abi},
    Rule{"TW-NCCL-012", Severity::kWarning, "GPUDirect is off, says the log",
         "A channel `via NET/IB/0` without `/GDRDMA` copies through host memory.", gdr_off},
    Rule{"TW-NCCL-013", Severity::kError, "a queue pair could not be connected",
         "The errno of ibv_modify_qp tells which side of the address is wrong.", connect_failed},
    Rule{"TW-NCCL-014", Severity::kError, "a work request failed",
         "The status of the first completion that is not a flush. vendor_err is the NIC's own number: 129 on mlx5 and 10 on "
         "bnxt are the same status 12.", completion_failed},
    Rule{"TW-NCCL-015", Severity::kInfo, "flushes only", "Status 5 means that something else failed first.", flushes_only},
    Rule{"TW-NCCL-016", Severity::kError, "memory could not be registered",
         "Registration fails at the limit of locked memory, at BAR 1's size, or for want of a way to GPU memory.", registration_failed},
    Rule{"TW-NCCL-017", Severity::kError, "a port went down while the job ran",
         "NCCL's cached GID index is stale after that, in versions that do not ask anew.", port_errors},
    Rule{"TW-NCCL-018", Severity::kError, "the ranks could not meet",
         "Before any RDMA, ranks meet over TCP.", bootstrap_failed},
    Rule{"TW-NCCL-019", Severity::kError, "local access violation",
         "Version 2.20 no longer takes the smaller of both ends' MTU in every place, so what used to be slow is an error now.",
         access_violation},
    Rule{"TW-NCCL-020", Severity::kError, "NCCL cannot read the GID table",
         "The type of an empty GID cannot be read (EINVAL), and some versions of NCCL give up at the first such entry.",
         sparse_table},
    Rule{"TW-NCCL-021", Severity::kWarning, "a request that NCCL lost",
         "Seen with its port failover, after a link that was away for a moment.", lost_clearance},
};
// clang-format on

}  // namespace

RuleGroup nccl_rules() { return {"NCCL: settings and log", kNcclRules}; }

}  // namespace tensorwire::host
