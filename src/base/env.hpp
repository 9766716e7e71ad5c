// Every environment variable that Tensorwire reads, in one table, and the only code that reads them. A name that is
// not in the table does not compile. To add a variable, add a row to kVariables.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.hpp"

namespace tensorwire::env {

struct Variable {
  std::string_view name;
  std::string_view default_text;  ///< what holds when it is unset, as a person would write it
  std::string_view meaning;       ///< one line
};

// clang-format off
inline constexpr auto kVariables = std::to_array<Variable>({
    {"TENSORWIRE_ACK_FLOOR", "20ms", "the shortest acknowledge timeout of the soft HCA, whatever the queue pair asks for"},
    {"TENSORWIRE_BOOTSTRAP_ADDRESS", "addresses of all interfaces", "address or interface of rank 0's host that a unique id (twGetUniqueId) names to the other ranks"},
    {"TENSORWIRE_BOOTSTRAP_TIMEOUT", "60s", "bound of the rendezvous and of each exchange between the ranks"},
    {"TENSORWIRE_DCQCN", "off", "congestion control of the soft HCA: off, paper (as published) or nic (as network cards do it)"},
    {"TENSORWIRE_DEVICE", "automatic", "RDMA device, as --device: mlx5_0, mlx5_0:1, soft, soft1"},
    {"TENSORWIRE_FAULTS", "none", "faults that the soft HCA injects into its own traffic, for example drop=1%,seed=7"},
    {"TENSORWIRE_FLIGHT_RECORD", "none", "folder for the last 64 operations of every rank whose communicator fails, a file each"},
    {"TENSORWIRE_GID_INDEX", "automatic", "GID index, as --gid-index; the automatic choice is the routable RoCE v2 entry"},
    {"TENSORWIRE_GID_LAYOUT", "v2", "GID table of soft HCA devices: v2 (RoCE v2 only) or connectx (v1/v2 pairs, IPv4 at 2 and 3)"},
    {"TENSORWIRE_GSO", "on", "whether the soft HCA hands the kernel several packets in one send (UDP_SEGMENT): on or off"},
    {"TENSORWIRE_HOSTID", "boot id and network namespace", "what tells this host from others, or a name for each rank, as a,a,b,b: only ranks of one host map each other's memory"},
    {"TENSORWIRE_LIBRARY", "the wheel's, else as the loader finds it", "libtensorwire.so that the Python package loads"},
    {"TENSORWIRE_LINE_RATE", "the interface's speed, else 100000", "line rate that DCQCN starts from and returns to, in Mb/s"},
    {"TENSORWIRE_LINK", "auto", "how soft HCA packets travel: auto (same-host link where possible) or packets (always RoCEv2 over UDP)"},
    {"TENSORWIRE_LOG", "warn", "what is written to stderr: off, error, warn, info or debug"},
    {"TENSORWIRE_LOG_FORMAT", "text", "how that is written: text, or json (an object a line)"},
    {"TENSORWIRE_MAPPED", "off", "whether ranks of one host read each other's slots in mapped memory: auto (where they can), off (the HCA carries all) or on (or an error); packets that are asked for are packets"},
    {"TENSORWIRE_METRICS", "none", "file that each rank writes its statistics to, for Prometheus; %r rank, %c communicator, %p process"},
    {"TENSORWIRE_METRICS_INTERVAL", "10s", "how often that file is written anew; 0: when the communicator ends only"},
    {"TENSORWIRE_PATH", "auto", "how operations on GPU memory travel: auto, peer (between GPUs, or an error), shared (through memory of the host, or an error), hierarchical (one of these inside hosts, proxy between them, or an error), proxy (a thread carries what kernels hand it) or host (copies by each call)"},
    {"TENSORWIRE_PCAP", "none", "file to which the soft HCA writes every packet it sends and receives; %p becomes the process id"},
    {"TENSORWIRE_PROXY_CPUS", "those of the GPU's NUMA node", "processors that a GPU's proxy thread may run on, as 2-5,8"},
    {"TENSORWIRE_RAILS", "the communicator's device", "RDMA devices, as soft1,soft2, that share out tensors of a GPU; as many on all ranks, at most 4"},
    {"TENSORWIRE_RCVBUF", "8MiB", "receive buffer of the soft HCA as SO_RCVBUF counts it, as far as the system allows"},
    {"TENSORWIRE_SECRET", "none", "shared secret that every rank must prove to know at the rendezvous; never logged"},
    {"TENSORWIRE_SECRET_FILE", "none", "file whose first line is that secret"},
    {"TENSORWIRE_SOFT_LIBRARY", "lib/tensorwire/libibverbs.so.1 beside the program", "path of the user-space HCA drop-in"},
    {"TENSORWIRE_STREAM", "auto", "whether bytes for ranks that map this one's memory are stored past the caches: on, off, or auto (by the processor)"},
    {"TENSORWIRE_STREAM_WAITS", "off", "all-reduces of GPUs between hosts of so many bytes and more (8MiB) wait for the host in the stream, by its memory operations, instead of in a kernel; off: none"},
    {"TENSORWIRE_TRACE", "none", "file that each rank writes a trace of its operations to, for Perfetto; %r, %c, %p as above"},
    {"TENSORWIRE_TRACE_EVENTS", "131072", "the last events that a trace keeps"},
    {"TENSORWIRE_TUNE", "tensorwire/tune.toml in $XDG_CONFIG_HOME or ~/.config", "file of what `tensorwire tune` measured, which sets the thresholds between algorithms; off: the built-in ones"},
    {"TENSORWIRE_WINDOWS", "auto", "where a GPU's proxy has what it sends and receives: gpu, host (pinned memory), or auto (gpu where the HCA reaches it)"},
});
// clang-format on

/// The name of a row of kVariables, checked when the program is compiled.
class Name {
 public:
  consteval Name(const char* literal) : text_(literal) {  // NOLINT(google-explicit-constructor): reads as a string
    if (std::ranges::find(kVariables, std::string_view{literal}, &Variable::name) == kVariables.end()) {
      throw "this variable has no row in tensorwire::env::kVariables";
    }
  }

  [[nodiscard]] constexpr const char* c_str() const noexcept { return text_; }

 private:
  const char* text_;
};

/// The variable's text; nothing when it is unset or empty. Reads the environment anew each time: for set-up only.
[[nodiscard]] std::optional<std::string> get(Name name);

/// The typed readers return `fallback` when the variable is unset or empty, and throw an Error that names the variable,
/// its text and what was expected when it cannot be read as asked.
[[nodiscard]] std::int64_t get_int(Name name, std::int64_t fallback, std::int64_t lowest = INT64_MIN,
                                   std::int64_t highest = INT64_MAX);
/// 1, true, yes, on; 0, false, no, off.
[[nodiscard]] bool get_bool(Name name, bool fallback);
/// A size as base/units.hpp reads it: "256KiB".
[[nodiscard]] std::uint64_t get_bytes(Name name, std::uint64_t fallback);
/// A duration as base/units.hpp reads it: "75us".
[[nodiscard]] Ps get_duration(Name name, Ps fallback);
/// One of `choices`, exactly as written there.
[[nodiscard]] std::string get_choice(Name name, std::string_view fallback,
                                     std::initializer_list<std::string_view> choices);

/// Names in the environment that begin with TENSORWIRE_ and are in no row: most likely misspelled. Sorted.
[[nodiscard]] std::vector<std::string> unknown_variables();

}  // namespace tensorwire::env
