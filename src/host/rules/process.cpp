// Limits and libraries of the process that is looked at.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "host/rules/groups.hpp"
#include "host/rules/queries.hpp"

namespace tensorwire::host {

namespace {

void low_memlock(const Host& host, Judgement& judgement) {
  constexpr std::uint64_t kEnough = std::uint64_t{1} << 30;
  const auto ports = roce_ports(host);
  if (std::ranges::all_of(ports, [](const PortView& view) { return view.device->is_of_user_space(); })) return;
  const auto& limit = host.process.memlock_bytes;
  if (!limit) {
    judgement.unknown("locked memory limit", limit);
    return;
  }
  if (*limit >= kEnough) return;
  if (!host.process.is_job()) {
    // What a shell may lock says nothing of a job that systemd or a container engine starts.
    judgement.unknown(
        "locked memory limit of the job",
        Fact<std::uint64_t>::unknown("this is not a job's process; --pid N reads that of a job", limit.where()));
    return;
  }
  judgement.found(
      Confidence::kCertain, "memlock",
      fmt::format("the process may lock {} KiB of memory: registrations beyond that fail with ENOMEM", *limit / 1024),
      "`* - memlock unlimited` in /etc/security/limits.d/rdma.conf and LimitMEMLOCK=infinity in the systemd unit; "
      "docker run --ulimit memlock=-1",
      {evidence(limit, fmt::format("Max locked memory {}", *limit))});
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
};
// clang-format on

}  // namespace

RuleGroup process_rules() { return {"The process: limits and libraries", kProcessRules}; }

}  // namespace tensorwire::host
