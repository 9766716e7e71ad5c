// Who am I, how many are we, where do we meet: read from the environment of a launcher (torchrun, OpenMPI/PMIx, Slurm)
// or given by flags. Detection is a pure function of an environment map.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/time.hpp"

namespace tensorwire::bootstrap {

class Socket;

inline constexpr int kMaxWorldSize = 65536;
inline constexpr std::uint16_t kDefaultPort = 29500;

using Environment = std::map<std::string, std::string, std::less<>>;

/// The environment of this process.
[[nodiscard]] Environment process_environment();

struct GroupOptions {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        ///< index among the ranks of this host
  int local_world_size = 1;  ///< ranks on this host
  std::string master_address = "127.0.0.1";
  std::uint16_t master_port = kDefaultPort;
  std::vector<std::string> more_addresses;  ///< of rank 0: the others try them after master_address
  std::shared_ptr<Socket> listener;         ///< rank 0: listens at the meeting place already; null: join() does
  std::string job;                 ///< the launcher's job identity; keeps jobs that share a port apart. May be empty.
  std::string secret;              ///< empty: no authentication. Never logged.
  Ps timeout = 60 * kSecond;       ///< bound of join() and of each collective call
  std::string launcher = "flags";  ///< where the values came from: "torchrun", "OpenMPI", "PMI", "Slurm", "flags"
};

/// What the command line gives; whatever is set wins over the environment.
struct GroupFlags {
  std::optional<int> rank, world_size, local_rank, local_world_size;
  std::optional<std::string> master_address;
  std::optional<std::uint16_t> master_port;
};

/// True when a launcher's variables are there: RANK and WORLD_SIZE, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID of a
/// job step.
[[nodiscard]] bool under_launcher(const Environment& environment);

/// Reads torchrun's variables, else OpenMPI's, else those of a PMI launcher, else Slurm's; flags win. MASTER_ADDR and
/// MASTER_PORT count under every launcher. Without MASTER_ADDR the meeting place is 127.0.0.1 when all ranks are local,
/// the first host of the job under Slurm, and else an Error. TENSORWIRE_SECRET or TENSORWIRE_SECRET_FILE, and
/// TENSORWIRE_BOOTSTRAP_TIMEOUT ("60s") are read from the map too.
/// @throws Error naming the variable that is missing, not a number, or out of range.
[[nodiscard]] GroupOptions detect_options(const Environment& environment, const GroupFlags& flags = {});

/// @throws Error when rank, world size, local rank, port or timeout make no sense.
void check_options(const GroupOptions& options);

}  // namespace tensorwire::bootstrap
