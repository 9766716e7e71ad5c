// `tensorwire configure`: brings ports into the state that RoCEv2 needs. Without --apply nothing is changed.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/atomic_file.hpp"
#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "cli/configure/report.hpp"
#include "cli/program.hpp"
#include "host/configure/apply.hpp"
#include "host/configure/live_effects.hpp"
#include "host/configure/persist.hpp"
#include "host/configure/script.hpp"
#include "host/configure/undo_record.hpp"
#include "host/read/stacked.hpp"
#include "host/record.hpp"

namespace tensorwire::cli {
namespace {

constexpr int kDrift = 2;
/// Above this an interface is in use: a change that takes its link down is refused.
constexpr double kIdleBytesPerSecond = 1e6;

struct ConfigureFlags {
  std::vector<std::string> words;  ///< interfaces, perhaps after one of kVerbs
  bool apply = false, check = false, force = false, json = false, emit_script = false, persist = false;
  bool no_timer = false;
  std::uint32_t priority = 3, dscp = 26, cnp_dscp = 48, share = 50, timer_seconds = 60;
  std::optional<int> cnp_priority, mtu;
  std::string root;  ///< a recording or a copy of files, instead of this host
  std::string state = "/var/lib/tensorwire/configure";
  std::string etc = "/etc";
};

constexpr std::array<std::string_view, 3> kVerbs = {"confirm", "rollback", "verify"};

host::Wanted wanted_by(const ConfigureFlags& flags) {
  host::Wanted wanted;
  wanted.priority = flags.priority;
  wanted.dscp = flags.dscp;
  wanted.cnp_dscp = flags.cnp_dscp;
  wanted.share = flags.share;
  if (flags.cnp_priority) wanted.cnp_priority = static_cast<unsigned>(*flags.cnp_priority);
  if (flags.mtu) wanted.mtu = static_cast<unsigned>(*flags.mtu);
  return wanted;
}

void show(const std::vector<host::PortDifference>& differences, bool json) {
  if (json) {
    fmt::print("{}\n", json_of(differences).dump(2));
    return;
  }
  for (const host::PortDifference& difference : differences) fmt::print("{}", report_of(difference));
}

std::vector<host::PortDifference> find_all(const ConfigureFlags& flags) {
  const std::unique_ptr<host::Tree> tree =
      flags.root.empty() ? std::make_unique<host::LiveTree>() : host::open_recorded(flags.root);
  std::vector<host::PortDifference> all;
  for (const std::string& netdev : flags.words) {
    const host::PortState state = host::read_port_state(*tree, netdev);
    if (!state.mtu && !state.driver) {
      throw Error{"configure " + netdev, "there is no such interface", "ip link shows them"};
    }
    all.push_back(find_difference(state, wanted_by(flags)));
  }
  return all;
}

/// Why this interface should be left alone for now; --force overrides it.
std::string danger_of(const host::PortDifference& difference) {
  host::LiveTree tree;
  const std::string& netdev = difference.netdev;
  for (const std::string& above : host::with_all_above(tree, netdev)) {
    const std::string it = above == netdev ? "it" : above + ", which lies on it";
    if (above == host::session_interface()) return "this session comes over " + it;
    if (host::has_default_route(tree, above)) return "the default route leads over " + it;
  }
  if (!difference.flaps_link()) return {};
  const auto load = host::traffic(netdev);
  if (load && *load > kIdleBytesPerSecond) {
    return fmt::format("it carries {:.0f} MB/s, and the change takes its link down for a moment", *load / 1e6);
  }
  return {};
}

void refuse_what_is_dangerous(const std::vector<host::PortDifference>& differences, bool force) {
  for (const host::PortDifference& difference : differences) {
    const std::string what = "configure " + difference.netdev;
    if (!difference.refusals.empty()) throw Error{what, difference.refusals.front()};
    if (const std::string why = difference.why_not_judged(); !why.empty()) {
      throw Error{what, why + ", so that nobody could say whether a change was made"};
    }
    const std::string danger = force ? std::string{} : danger_of(difference);
    if (!danger.empty()) throw Error{what, danger, "Give --force if that is all right"};
  }
}

/// What asks for the same as `flags`.
std::string options_of(const ConfigureFlags& flags) {
  const ConfigureFlags usual;
  std::string text;
  const auto add = [&](const char* name, const auto& value) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " ", name, value);
  };
  if (flags.priority != usual.priority) add("--priority", flags.priority);
  if (flags.dscp != usual.dscp) add("--dscp", flags.dscp);
  if (flags.cnp_dscp != usual.cnp_dscp) add("--cnp-dscp", flags.cnp_dscp);
  if (flags.share != usual.share) add("--share", flags.share);
  if (flags.cnp_priority) add("--cnp-priority", *flags.cnp_priority);
  if (flags.mtu) add("--mtu", *flags.mtu);
  return text;
}

std::vector<std::pair<std::string, std::string>> persistent_files_of(const ConfigureFlags& flags,
                                                                     const std::string& netdev) {
  return host::persistent_files(flags.etc, netdev, std::filesystem::read_symlink("/proc/self/exe"), options_of(flags));
}

std::vector<std::string> new_persistent_files(const ConfigureFlags& flags, const std::string& netdev) {
  std::vector<std::string> paths;
  if (!flags.persist) return paths;
  for (const auto& [path, text] : persistent_files_of(flags, netdev)) {
    if (::access(path.c_str(), F_OK) != 0) paths.push_back(path);
  }
  return paths;
}

void persist(const ConfigureFlags& flags) {
  for (const std::string& netdev : flags.words) {
    for (const auto& [path, text] : persistent_files_of(flags, netdev)) {
      std::error_code error;
      std::filesystem::create_directories(std::filesystem::path{path}.parent_path(), error);
      replace_file(path, text);
      fmt::print("wrote {}\n", path);
    }
  }
  std::puts("systemctl daemon-reload && udevadm control --reload makes them known");
}

/// Records, sets a guard, applies.
void apply_all(const ConfigureFlags& flags, const std::vector<host::PortDifference>& differences) {
  refuse_what_is_dangerous(differences, flags.force);
  const host::UndoRecords records{flags.state};
  const UniqueFd lock = records.lock();
  std::vector<std::string> netdevs;
  std::vector<std::string> earlier;
  for (const host::PortDifference& difference : differences) {
    if (difference.changes.empty()) continue;
    earlier.push_back(records.write(difference, new_persistent_files(flags, difference.netdev)));
    netdevs.push_back(difference.netdev);
  }
  const auto bound = flags.no_timer ? std::nullopt : std::optional<Ps>{flags.timer_seconds * kSecond};
  host::Guard guard = records.guard(netdevs, bound);
  host::LiveEffects host;
  const host::Applied applied = host::apply(differences, wanted_by(flags), host);
  if (!applied.ok()) {
    guard.stop();
    if (!applied.left_over.empty())
      throw Error{"configure", applied.failure, "Set back, but for: " + applied.left_over.front()};
    for (std::size_t i = 0; i < netdevs.size(); ++i) records.replace(netdevs[i], earlier[i]);
    throw Error{"configure", applied.failure, "Everything was set back"};
  }
  guard.finished();
  for (const std::string& line : applied.read_back) fmt::print("{}\n", line);
  std::fputs("applied and read back", stdout);
  if (flags.no_timer) {
    std::puts("");
  } else {
    fmt::print("; it is taken back in {} s unless you say: tensorwire configure confirm\n", flags.timer_seconds);
  }
}

int configure(const ConfigureFlags& flags) {
  const auto differences = find_all(flags);
  const bool drifted = std::ranges::any_of(differences, [](const auto& d) { return !d.changes.empty(); });
  const bool refused = std::ranges::any_of(
      differences, [](const auto& d) { return !d.refusals.empty() || !d.why_not_judged().empty(); });
  show(differences, flags.json);
  if (flags.check) return refused ? 1 : drifted ? kDrift : 0;
  if (flags.apply && (drifted || refused)) {
    apply_all(flags, differences);
  } else if (!flags.json) {
    std::puts(!drifted ? "nothing to change" : "nothing was changed; --apply does it");
  }
  if (flags.persist && !refused) persist(flags);
  return refused ? 1 : 0;
}

int confirm(const ConfigureFlags& flags) {
  const std::size_t stopped = host::UndoRecords{flags.state}.disarm();
  if (stopped == 0) throw Error{"confirm", "no change waits to be confirmed", "Was it taken back already?"};
  std::puts("confirmed: it stays");
  return 0;
}

int roll_back(const ConfigureFlags& flags, const std::vector<std::string>& netdevs) {
  const host::UndoRecords records{flags.state};
  if (netdevs.empty()) throw Error{"rollback", "no interface is named", "tensorwire configure rollback eth2"};
  records.disarm();
  for (const std::string& netdev : netdevs) {
    if (!records.exists(netdev))
      throw Error{"rollback " + netdev, "no change of it is on record", records.path(netdev)};
    if (!records.run(netdev)) throw Error{"rollback " + netdev, "some of it failed", "See " + records.path(netdev)};
    fmt::print("{}: set back\n", netdev);
  }
  return 0;
}

int run(ConfigureFlags flags) {
  if (flags.emit_script) {
    std::fputs(host::standalone_script(wanted_by(flags)).c_str(), stdout);
    return 0;
  }
  if (flags.words.empty())
    throw Error{"configure", "no interface is named", "tensorwire configure eth2; ip link shows them"};
  const std::string verb = flags.words.front();
  if (std::ranges::count(kVerbs, verb) != 0) flags.words.erase(flags.words.begin());
  if (verb == "confirm") return confirm(flags);
  if (verb == "rollback") return roll_back(flags, flags.words);
  if (verb == "verify") flags.check = true;
  if (!flags.root.empty() && (flags.apply || flags.persist)) {
    throw Error{"configure --root", "a recording cannot be changed", "Leave out --apply and --persist"};
  }
  std::vector<std::string> once;
  for (const std::string& netdev : flags.words) {
    if (std::ranges::count(once, netdev) == 0) once.push_back(netdev);
  }
  flags.words = std::move(once);
  return configure(flags);
}

}  // namespace

void add_configure(Command& parent, int& status) {
  Command command = parent.command("configure", "bring Ethernet ports into the state that RoCEv2 needs");
  auto flags = std::make_shared<ConfigureFlags>();
  command.option("interfaces", flags->words,
                 "interfaces; or verify, rollback and interfaces; or confirm, after --apply");
  command.flag("--apply", flags->apply, "change what differs: all or nothing (default: show it)");
  command.flag("--check", flags->check, "change nothing; exit status 2 if something differs");
  command.flag("--force", flags->force, "also on the interface of this session or the default route, or under traffic");
  command.flag("--json", flags->json, "what differs, as JSON");
  command.flag("--emit-script", flags->emit_script, "print a shell script for hosts without this program");
  command.flag("--persist", flags->persist, "also write a systemd service and a udev rule that do it at each boot");
  command.flag("--no-timer", flags->no_timer, "do not take the change back when nobody confirms it");
  command.option("--timer", flags->timer_seconds, "seconds until an unconfirmed change is taken back").shows_default();
  command.option("--priority", flags->priority, "the lossless priority").shows_default().between(0, 7);
  command.option("--dscp", flags->dscp, "DSCP of the data").shows_default().between(0, 63);
  command.option("--cnp-dscp", flags->cnp_dscp, "DSCP of congestion notifications").shows_default().between(0, 63);
  command.option("--cnp-priority", flags->cnp_priority, "their priority (default: 6, or 7 on Broadcom)").between(0, 7);
  command.option("--share", flags->share, "per cent of the link that the data's class gets when others want it, too")
      .shows_default()
      .between(1, 90);
  command.option("--mtu", flags->mtu, "bytes (default: as it is, but at least 4200)").between(576, 9978);
  command.option("--root", flags->root, "a recording, or a copy of a host's files, to look at instead of this host");
  command.option("--state", flags->state, "folder for the records of what was there before").shows_default();
  command.option("--etc", flags->etc, "folder of --persist").shows_default();
  command.runs([flags, &status] { status = run(*flags); });
}

}  // namespace tensorwire::cli
