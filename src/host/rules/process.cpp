// Limits and libraries of the process that is looked at.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "host/rules/groups.hpp"
#include "host/rules/queries.hpp"

namespace tensorwire::host {

namespace {

constexpr std::uint64_t kEnoughLocked = std::uint64_t{1} << 30;

std::string raise_limit_of(const std::string& service) {
  return fmt::format("systemctl edit {0}: [Service] LimitMEMLOCK=infinity; then systemctl restart {0}", service);
}

/// In the words of what started the process.
std::string raise_memlock(const Host& host) {
  if (!host.process.service.empty()) return raise_limit_of(host.process.service);
  if (host.in_container.value_or(false))
    return "docker run --ulimit memlock=-1; in Kubernetes LimitMEMLOCK=infinity for containerd's unit";
  return "`* - memlock unlimited` in /etc/security/limits.d/rdma.conf and LimitMEMLOCK=infinity in the systemd unit; "
         "docker run --ulimit memlock=-1";
}

void low_memlock(const Host& host, Judgement& judgement) {
  const auto ports = roce_ports(host);
  if (std::ranges::all_of(ports, [](const PortView& view) { return view.device->is_of_user_space(); })) return;
  const auto& limit = host.process.memlock_bytes;
  if (!limit) {
    judgement.unknown("locked memory limit", limit);
    return;
  }
  if (*limit >= kEnoughLocked) return;
  if (!host.process.is_job()) {
    // What a shell may lock says nothing of a job that systemd or a container engine starts.
    judgement.unknown(
        "locked memory limit of the job",
        Fact<std::uint64_t>::unknown("this is not a job's process; --pid N reads that of a job", limit.where()));
    return;
  }
  std::vector<std::string> seen{evidence(limit, fmt::format("Max locked memory {}", *limit))};
  for (const ServiceLimit& service : host.service_limits) {
    if (service.service == host.process.service) seen.push_back(service.where + ": " + service.text);
  }
  judgement.found(
      Confidence::kCertain, "memlock",
      fmt::format("the process may lock {} KiB of memory: registrations beyond that fail with ENOMEM", *limit / 1024),
      raise_memlock(host), seen);
}

void service_limits_memlock(const Host& host, Judgement& judgement) {
  for (const ServiceLimit& service : host.service_limits) {
    // That of the job's own process says more.
    if (service.bytes >= kEnoughLocked || service.service == host.process.service) continue;
    judgement.found(
        Confidence::kLikely, service.service,
        fmt::format("what this service starts may lock {} KiB of memory, whatever a shell on this host may: "
                    "registrations beyond that fail with ENOMEM",
                    service.bytes / 1024),
        raise_limit_of(service.service) + " (jobs that run already keep their limit)",
        {service.where + ": " + service.text});
  }
}

void two_nccls(const Host& host, Judgement& judgement) {
  std::vector<std::string> found;
  for (const std::string& path : host.process.libraries.value_or({})) {
    const std::string_view file = std::string_view{path}.substr(path.rfind('/') + 1);
    if (file.starts_with("libnccl.so")) found.push_back(path);
  }
  if (found.size() < 2) return;
  std::vector<std::string> seen;
  for (const std::string& path : found) seen.push_back(host.process.libraries.where() + ": " + path);
  judgement.found(
      Confidence::kLikely, "libnccl",
      "two copies of NCCL are loaded into one process: whose symbols are called depends on the order of loading, "
      "and other hosts may have it the other way round",
      "remove one (pip's nvidia-nccl or the system's), or choose with LD_LIBRARY_PATH, equally on all hosts", seen);
}

void two_verbs_libraries(const Host& host, Judgement& judgement) {
  std::vector<std::string> seen;
  for (const std::string& path : host.process.libraries.value_or({})) {
    const std::string_view file = std::string_view{path}.substr(path.rfind('/') + 1);
    if (file.starts_with("libibverbs.so")) seen.push_back(host.process.libraries.where() + ": " + path);
  }
  if (seen.size() < 2) return;
  judgement.found(Confidence::kLikely, "libibverbs",
                  "two copies of libibverbs are loaded into one process: objects of one do not work in the other",
                  "let one be found only (LD_LIBRARY_PATH, RPATH)", seen);
}

void no_cma(const Host& host, Judgement& judgement) {
  const bool shares_memory = std::ranges::any_of(
      host.gpus, [](const Gpu& gpu) { return gpu.model && gpu.model->find("GB10") != std::string::npos; });
  if (!shares_memory || !host.cma_bytes.is(0)) return;
  judgement.found(
      Confidence::kPossible, "CMA",
      "this kernel sets no memory aside for contiguous allocation: on GB10 even small registrations then fail "
      "with ENOMEM",
      "another kernel of the platform (6.17.0-1031-nvidia in a public report), or cma=SIZE on its command line",
      {evidence(host.cma_bytes, "CmaTotal: 0 kB")});
}

// clang-format off
constexpr std::array kProcessRules = {
    Rule{"TW-PROC-001", Severity::kError, "too little memory may be locked",
         "Registered memory is locked. The limit that counts is that of the job's own process: a service's comes from "
         "systemd, a container's from its engine, neither from the shell where one looks (`--pid N` reads the right one).",
         low_memlock},
    Rule{"TW-PROC-002", Severity::kWarning, "two NCCL libraries in one process",
         "Python wheels bring their own NCCL beside the system's. Public reports have jobs hang after minutes.",
         two_nccls},
    Rule{"TW-PROC-003", Severity::kWarning, "two libibverbs in one process",
         "A wheel or a container layer brought a second one.", two_verbs_libraries},
    Rule{"TW-PROC-004", Severity::kWarning, "no memory for contiguous allocation",
         "GB10 shares its memory between CPU and GPU, and registers it in contiguous pieces. One of its kernels came without "
         "any (CmaTotal: 0 kB), and ibv_reg_mr failed for a kilobyte. On other machines 0 is usual and says nothing.", no_cma},
    Rule{"TW-PROC-005", Severity::kWarning, "a service lets its jobs lock too little memory",
         "Jobs inherit the limit of what started them: slurmd, containerd, docker, kubelet. A unit's file, or an addition to it, "
         "that says LimitMEMLOCK= counts, and neither /etc/security/limits.d nor the shell where one looks.",
         service_limits_memlock},
};
// clang-format on

}  // namespace

RuleGroup process_rules() { return {"The process: limits and libraries", kProcessRules}; }

}  // namespace tensorwire::host
