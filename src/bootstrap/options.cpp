#include "bootstrap/options.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <fstream>
#include <string_view>

#include "base/env.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "bootstrap/slurm.hpp"

namespace tensorwire::bootstrap {

namespace {

/// The variables in which a launcher says who a process is. An empty name: the launcher does not say.
struct Launcher {
  const char* name;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
  const char* job;
};

/// In the order in which they are tried. Under Slurm only SLURM_STEP_NUM_TASKS proves that srun started this process: a
/// batch script also has SLURM_PROCID=0 and SLURM_NTASKS.
constexpr std::array kLaunchers{
    Launcher{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"},
    Launcher{"OpenMPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
             "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"},
    Launcher{"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ""},
    Launcher{"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURM_JOB_ID"},
};
constexpr const Launcher* kSlurm = &kLaunchers.back();

std::optional<std::string_view> find(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  if (found == environment.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<int> find_int(const Environment& environment, std::string_view name) {
  const auto text = find(environment, name);
  if (!text) return std::nullopt;
  int value = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, code] = std::from_chars(text->data(), end, value);
  if (code != std::errc{} || stop != end) {
    throw Error{fmt::format("read {}={}", name, *text), "not a whole number",
                "The launcher sets it; look at its options"};
  }
  return value;
}

/// A launcher counts when both rank and world size are there. torchrun's names are so plain that one of them alone may
/// mean something else to someone; the error for that comes from whoever needs a rank.
const Launcher* find_launcher(const Environment& environment) {
  for (const Launcher& launcher : kLaunchers) {
    if (find(environment, launcher.rank) && find(environment, launcher.world_size)) return &launcher;
  }
  return nullptr;
}

int require(std::optional<int> from_flag, std::optional<int> from_environment, const char* what, const char* variable) {
  if (from_flag) return *from_flag;
  if (from_environment) return *from_environment;
  throw Error{"join a group", fmt::format("the {} is not known: neither a flag nor {} says it", what, variable),
              "Start the ranks with torchrun, mpirun or srun, or give --rank, --world-size and --master-addr"};
}

int slurm_local_size(const Environment& environment) {
  const auto text = find(environment, "SLURM_STEP_TASKS_PER_NODE");
  const auto tasks = text ? slurm_tasks_per_node(*text) : std::nullopt;
  const auto node = static_cast<std::size_t>(find_int(environment, "SLURM_NODEID").value_or(0));
  return tasks && node < tasks->size() ? (*tasks)[node] : 1;
}

std::string master_address(const Environment& environment, const Launcher* launcher, const GroupOptions& options) {
  if (const auto address = find(environment, "MASTER_ADDR")) return std::string{*address};
  if (options.local_world_size == options.world_size) return "127.0.0.1";
  if (launcher == kSlurm) {
    for (const char* list : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
      const auto text = find(environment, list);
      if (const auto host = text ? first_slurm_host(*text) : std::nullopt) return *host;
    }
  }
  throw Error{"join a group", "no one says where the ranks meet: MASTER_ADDR is not set",
              launcher != nullptr && std::string_view{launcher->name} == "OpenMPI"
                  ? "Give mpirun -x MASTER_ADDR=<host of rank 0>"
                  : "Set MASTER_ADDR or give --master-addr: a name or address of rank 0's host"};
}

std::uint16_t master_port(const Environment& environment) {
  const auto port = find_int(environment, "MASTER_PORT");
  if (port && (*port < 1 || *port > UINT16_MAX)) {
    throw Error{fmt::format("read MASTER_PORT={}", *port), "not between 1 and 65535"};
  }
  return port ? static_cast<std::uint16_t>(*port) : kDefaultPort;
}

std::string read_secret(const Environment& environment) {
  constexpr env::Name kSecret{"TENSORWIRE_SECRET"};
  constexpr env::Name kSecretFile{"TENSORWIRE_SECRET_FILE"};
  const auto secret = find(environment, kSecret.c_str());
  const auto path = find(environment, kSecretFile.c_str());
  if (secret && path)
    throw Error{"read the shared secret", "both TENSORWIRE_SECRET and TENSORWIRE_SECRET_FILE are set"};
  if (secret) return std::string{*secret};
  if (!path) return {};
  std::ifstream file{std::string{*path}};
  std::string line;
  std::getline(file, line);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (line.empty()) {
    throw Error{fmt::format("read the shared secret from {}", *path),
                "the file cannot be read or its first line is empty", "Correct TENSORWIRE_SECRET_FILE or unset it"};
  }
  return line;
}

Ps read_timeout(const Environment& environment, Ps fallback) {
  constexpr env::Name kTimeout{"TENSORWIRE_BOOTSTRAP_TIMEOUT"};
  const auto text = find(environment, kTimeout.c_str());
  if (!text) return fallback;
  try {
    return parse_duration(*text);
  } catch (const Error& error) {
    throw Error{fmt::format("read {}={}", kTimeout.c_str(), *text), error.parts().why, "Write it as 60s or 500ms"};
  }
}

}  // namespace

Environment process_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line{*entry};
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return environment;
}

bool under_launcher(const Environment& environment) { return find_launcher(environment) != nullptr; }

GroupOptions detect_options(const Environment& environment, const GroupFlags& flags) {
  const Launcher* launcher = find_launcher(environment);
  const auto said = [&](const char* variable) { return launcher ? find_int(environment, variable) : std::nullopt; };
  const Launcher& names = launcher ? *launcher : kLaunchers.front();

  GroupOptions options;
  options.launcher = launcher ? launcher->name : "flags";
  options.rank = require(flags.rank, find_int(environment, names.rank), "rank", names.rank);
  options.world_size =
      require(flags.world_size, find_int(environment, names.world_size), "world size", names.world_size);
  const std::optional<int> local_size =
      launcher == kSlurm ? slurm_local_size(environment) : said(names.local_world_size);
  options.local_world_size = flags.local_world_size.value_or(local_size.value_or(1));
  options.local_rank = flags.local_rank.value_or(said(names.local_rank).value_or(0));
  options.master_port = flags.master_port ? *flags.master_port : master_port(environment);
  options.master_address =
      flags.master_address ? *flags.master_address : master_address(environment, launcher, options);
  if (launcher && *launcher->job != '\0') options.job = find(environment, launcher->job).value_or("");
  options.secret = read_secret(environment);
  options.timeout = read_timeout(environment, options.timeout);
  check_options(options);
  return options;
}

void check_options(const GroupOptions& options) {
  const auto refuse = [&](const std::string& why) {
    throw Error{"join a group", why,
                options.launcher == "flags" ? "Correct the flags" : "Look at what " + options.launcher + " was told"};
  };
  if (options.world_size < 1 || options.world_size > kMaxWorldSize) {
    refuse(fmt::format("a world size of {} is not between 1 and {}", options.world_size, kMaxWorldSize));
  }
  if (options.rank < 0 || options.rank >= options.world_size) {
    refuse(fmt::format("rank {} is outside of a world of {}", options.rank, options.world_size));
  }
  if (options.local_rank < 0 || options.local_rank >= options.local_world_size) {
    refuse(fmt::format("local rank {} is outside of the {} ranks of this host", options.local_rank,
                       options.local_world_size));
  }
  if (options.local_world_size > options.world_size) {
    refuse(fmt::format("{} ranks on this host are more than the world's {}", options.local_world_size,
                       options.world_size));
  }
  if (options.master_port == 0) refuse("port 0 is no meeting place");
  if (options.timeout <= 0) refuse("the timeout must be more than zero");
}

}  // namespace tensorwire::bootstrap
