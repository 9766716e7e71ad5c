// Who am I, how many are we, where do we meet: read from the environment of a launcher (torchrun, OpenMPI/PMIx, Slurm)
// or given by flags. Detection is a pure function of an environment map.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/time.hpp"

namespace tensorwire::bootstrap {

using Environment = std::map<std::string, std::string, std::less<>>;

/// The environment of this process.
[[nodiscard]] Environment process_environment();

struct GroupOptions {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        ///< index among the ranks of this host
  int local_world_size = 1;  ///< ranks on this host
  std::string master_address = "127.0.0.1";
  std::uint16_t master_port = 29500;
  std::string secret;              ///< empty: no authentication. Never logged.
  Ps timeout = 60 * kSecond;       ///< bound of join() and of each collective call
  std::string launcher = "flags";  ///< where the values came from: "torchrun", "OpenMPI", "PMIx", "Slurm", "flags"
};

/// What the command line gives; whatever is set wins over the environment.
struct GroupFlags {
  std::optional<int> rank, world_size, local_rank, local_world_size;
  std::optional<std::string> master_address;
  std::optional<std::uint16_t> master_port;
};

/// True when a launcher's variables are there (RANK and WORLD_SIZE, OMPI_COMM_WORLD_RANK, SLURM_PROCID with
/// SLURM_NTASKS).
[[nodiscard]] bool under_launcher(const Environment& environment);

/// Reads torchrun's variables, else OpenMPI's, else Slurm's; flags win. TENSORWIRE_SECRET or TENSORWIRE_SECRET_FILE and
/// TENSORWIRE_BOOTSTRAP_TIMEOUT (seconds) are read here too.
/// @throws Error naming the variable that is missing, not a number, or out of range.
[[nodiscard]] GroupOptions detect_options(const Environment& environment, const GroupFlags& flags = {});

}  // namespace tensorwire::bootstrap
