// `tensorwire doctor`: what is wrong with this host's fabric, from its own files or from a recording.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "base/units.hpp"
#include "cli/doctor_status.hpp"
#include "cli/doctor_watch.hpp"
#include "cli/mesh/mesh_command.hpp"
#include "cli/program.hpp"
#include "host/compare/compare.hpp"
#include "host/configure/port_state.hpp"
#include "host/pseudonyms.hpp"
#include "host/read/read.hpp"
#include "host/record.hpp"
#include "host/report.hpp"
#include "host/rule_pages.hpp"
#include "host/since.hpp"
#include "host/tree/folder_tree.hpp"
#include "host/tree/live_tree.hpp"

namespace tensorwire::cli {

namespace {

struct DoctorFlags {
  std::string root;
  std::string process = "self";
  std::string nccl_log;
  std::string over;
  std::string colour = "auto";
  bool json = false;
  bool firmware = false;
  std::string folder;
  bool pseudonyms = false;
  std::string key;
  std::string rule;
  std::vector<std::string> recordings;
  bool done = false;  ///< a command below has run: the one above has nothing to do
};

bool wants_colour(const std::string& wish) {
  if (wish == "always" || wish == "never") return wish == "always";
  if (wish != "auto") throw Error{"--color", wish + " is none of auto, always, never"};
  return isatty(STDOUT_FILENO) == 1;
}

std::unique_ptr<host::Tree> open_tree(const DoctorFlags& flags) {
  if (!flags.root.empty()) return host::open_recorded(flags.root);
  if (flags.process.find_first_not_of("0123456789") != std::string::npos && flags.process != "self") {
    throw Error{"--pid", flags.process + " is not the number of a process"};
  }
  return std::make_unique<host::LiveTree>(flags.process, flags.firmware);
}

host::Host read(host::Tree& tree, const DoctorFlags& flags) {
  host::Host host = host::read_host(tree);
  if (!flags.nccl_log.empty()) host.nccl_log = host::read_nccl_log(flags.nccl_log);
  return host;
}

/// The host; its counters as what they moved by, where two looks are wanted.
host::Host look(const DoctorFlags& flags) {
  const auto tree = open_tree(flags);
  if (flags.over.empty()) return read(*tree, flags);
  if (!flags.root.empty()) throw Error{"--over", "a recording is one look"};
  const Ps between = parse_duration(flags.over);
  const host::Host before = read(*tree, flags);
  std::this_thread::sleep_for(std::chrono::nanoseconds{between / kNanosecond});
  return host::counted_since(before, read(*tree, flags));
}

int examine(const DoctorFlags& flags) {
  const host::Host host = look(flags);
  const host::Diagnosis diagnosis = host::diagnose(host);
  const std::string text =
      flags.json ? host::report_json(host, diagnosis) : host::report_text(host, diagnosis, wants_colour(flags.colour));
  std::fputs(text.c_str(), stdout);
  return host::exit_status(diagnosis);
}

int record(const DoctorFlags& flags) {
  const auto tree = open_tree(flags);
  host::Recorder recorder{*tree};
  // What `configure --root` asks besides.
  for (const host::Netdev& netdev : host::read_host(recorder).netdevs.value_or({})) {
    if (netdev.has_rdma) static_cast<void>(host::read_port_state(recorder, netdev.name));
  }
  host::remove_private(recorder.recording());
  if (flags.pseudonyms) host::Pseudonyms{flags.key}.apply(recorder.recording());
  const std::string path = host::save(recorder.recording(), flags.folder);
  fmt::print("{}: {} answers; look at it before you give it away: `tensorwire doctor --root {}`\n", path,
             recorder.recording().size(), flags.folder);
  return 0;
}

/// A shell's completion leaves a slash at the end of a folder.
std::string host_name(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

int compare(const DoctorFlags& flags) {
  std::vector<host::NamedProperties> hosts;
  for (const std::string& path : flags.recordings) {
    const auto tree = host::open_recorded(path);
    hosts.push_back({host_name(path), host::properties_of(host::read_host(*tree))});
  }
  const host::Comparison comparison = host::compare(hosts);
  const std::string text = flags.json ? host::comparison_json(comparison) : host::comparison_text(comparison);
  std::fputs(text.c_str(), stdout);
  return host::exit_status(comparison);
}

int explain(const DoctorFlags& flags) {
  const host::Rule* rule = host::find_rule(flags.rule);
  if (rule == nullptr) throw Error{"explain " + flags.rule, "there is no such rule", "they look like TW-GID-003"};
  fmt::print("{} ({}): {}\n\n{}\n", rule->id, host::to_string(rule->severity), rule->title, rule->why);
  return 0;
}

}  // namespace

void add_doctor(Command& parent, int& status) {
  Command doctor = parent.command("doctor", "find out what is wrong with the fabric, as this host sees it");
  auto flags = std::make_shared<DoctorFlags>();
  doctor.option("--root", flags->root, "a recording, or a copy of a host's files, instead of this host");
  doctor.option("--pid", flags->process, "the process whose environment, limits and libraries are looked at");
  doctor.option("--nccl-log", flags->nccl_log, "a log of NCCL_DEBUG=INFO");
  doctor.option("--over", flags->over,
                "look twice, as far apart as 10s, and judge counters by what they moved in between");
  doctor.option("--color", flags->colour, "auto, always or never").shows_default();
  doctor.flag("--json", flags->json, "print JSON (docs/doctor.md)");
  const char* const firmware = "also read the settings of mlx5 firmware (mlxconfig, mstconfig): takes seconds";
  doctor.flag("--firmware", flags->firmware, firmware);
  doctor.runs([flags, &status] {
    if (!flags->done) status = verdict_of([&] { return examine(*flags); });
  });
  Command recording = doctor.command("record", "write what the doctor reads into a folder, to be looked at elsewhere");
  recording.option("folder", flags->folder, "the folder").required();
  recording.option("--pid", flags->process, "the process whose environment, limits and libraries are recorded");
  recording.flag("--firmware", flags->firmware, firmware);
  recording.flag("--pseudonyms", flags->pseudonyms, "put other addresses in place of the host's; subnets stay subnets");
  recording.option("--key", flags->key, "text that makes equal pseudonyms on all hosts, to compare them; else random");
  recording.runs([flags, &status] {
    flags->done = true;
    status = verdict_of([&] { return record(*flags); });
  });
  add_doctor_watch(doctor, status, flags->done);
  add_doctor_mesh(doctor, status, flags->done);
  Command comparison = doctor.command("compare", "what hosts of one fabric must agree on and do not");
  comparison.option("recordings", flags->recordings, "a recording of each host").required();
  comparison.flag("--json", flags->json, "print JSON (docs/doctor.md)");
  comparison.runs([flags, &status] {
    flags->done = true;
    status = verdict_of([&] { return compare(*flags); });
  });
  Command explanation = doctor.command("explain", "what a rule is about");
  explanation.option("rule", flags->rule, "its id, as TW-GID-003").required();
  explanation.runs([flags, &status] {
    flags->done = true;
    status = verdict_of([&] { return explain(*flags); });
  });
}

}  // namespace tensorwire::cli
