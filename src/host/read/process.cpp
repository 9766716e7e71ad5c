#include <algorithm>
#include <array>
#include <limits>

#include "host/parse/counters.hpp"
#include "host/parse/systemd.hpp"
#include "host/read/parts.hpp"
#include "host/read/read.hpp"

namespace tensorwire::host {

namespace {

/// "Max locked memory         8388608              8388608              bytes": the soft limit counts.
std::optional<std::uint64_t> memlock_in(std::string_view limits) {
  const auto values = between(limits, "Max locked memory", "\n");
  if (!values) return std::nullopt;
  const auto words = words_of(*values);
  if (words.empty()) return std::nullopt;
  return words[0] == "unlimited" ? std::numeric_limits<std::uint64_t>::max() : number_in<std::uint64_t>(words[0]);
}

/// The mapped files that have to do with RDMA, each once.
std::optional<std::vector<std::string>> libraries_in(std::string_view maps) {
  std::vector<std::string> found;
  for (const std::string_view line : lines_of(maps)) {
    const auto slash = line.find('/');
    if (slash == std::string_view::npos) continue;
    const std::string_view path = line.substr(slash);
    const std::string_view file = path.substr(path.rfind('/') + 1);
    if (is_rdma_library(file) && std::ranges::find(found, path) == found.end()) found.emplace_back(path);
  }
  return found;
}

void take_settings(const std::map<std::string, std::string, std::less<>>& from, const std::string& where,
                   std::map<std::string, Setting, std::less<>>& settings) {
  for (const auto& [name, value] : from) {
    if (is_fabric_variable(name)) settings.try_emplace(name, Setting{value, where});
  }
}

/// The files that NCCL and UCX read besides the environment, those that win first.
std::vector<std::string> files_of_settings(const std::map<std::string, Setting, std::less<>>& environment) {
  std::vector<std::string> files;
  if (const auto own = environment.find("NCCL_CONF_FILE"); own != environment.end()) files.push_back(own->second.value);
  files.insert(files.end(), {"~/.nccl.conf", "/etc/nccl.conf"});
  if (const auto own = environment.find("UCX_CONFIG_DIR"); own != environment.end())
    files.push_back(own->second.value + "/ucx.conf");
  files.insert(files.end(), {"~/ucx.conf", "/etc/ucx/ucx.conf", "/usr/etc/ucx/ucx.conf"});
  return files;
}

}  // namespace

bool is_fabric_variable(std::string_view name) {
  constexpr std::array kPrefixes = {"NCCL_",    "UCX_",  "MC_",         "GLOO_",
                                    "NVSHMEM_", "RCCL_", "TORCH_NCCL_", "OMPI_MCA_btl"};
  const auto has = [name](const char* part) { return name.find(part) != std::string_view::npos; };
  if (has("SECRET") || has("TOKEN") || has("PASSWORD") || has("KEY")) return false;
  return std::ranges::any_of(kPrefixes, [name](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_rdma_library(std::string_view file) {
  constexpr std::array kPrefixes = {"libnccl", "libibverbs", "librdmacm", "libmlx5", "libbnxt_re", "libirdma",
                                    "librxe",  "libionic",   "libefa",    "libucp",  "libnccl-net"};
  return std::ranges::any_of(kPrefixes, [file](std::string_view prefix) { return file.starts_with(prefix); });
}

Process read_process(Tree& tree) {
  Process process;
  const std::string environment = "/proc/target/environ";
  std::map<std::string, Setting, std::less<>> settings;
  const Answer own = tree.text(environment);
  take_settings(parse_environment(own.text), "environment", settings);
  for (const std::string& file : files_of_settings(settings)) {
    take_settings(parse_nccl_conf(tree.text(file).text), file, settings);
  }
  using Settings = decltype(process.settings);
  process.settings = own.ok() ? Settings{settings, environment} : Settings::unknown(own.why(), environment);
  process.memlock_bytes = fact_in_file(tree, "/proc/target/limits", memlock_in);
  process.service = service_in(tree.text("/proc/target/cgroup").text);
  process.libraries = fact_in_file(tree, "/proc/target/maps", libraries_in);
  return process;
}

}  // namespace tensorwire::host
