#include "host/configure/script.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "host/configure/recipe.hpp"
#include "host/configure/traffic_classes.hpp"
#include "host/facts/netdev.hpp"
#include "host/parse/text.hpp"

namespace tensorwire::host {
namespace {

constexpr std::string_view kHead = R"sh(#!/bin/sh
# Configures an Ethernet interface for RoCEv2: PFC on priority {priority} only, DSCP {dscp} leads to it, CNPs (DSCP {cnp_dscp}) to a
# priority of their own, global pause off. Without --apply it shows what it would do.
#
# `tensorwire configure --emit-script` wrote this file from its recipes. Where Tensorwire is installed, use
# `tensorwire configure`: it reads first, changes only what differs, reads back, and can take everything back.
#
# usage: configure_roce.sh [--apply] INTERFACE
set -eu

apply=false
if [ "${{1:-}}" = --apply ]; then
  apply=true
  shift
fi
if [ $# -ne 1 ]; then
  echo "usage: $0 [--apply] INTERFACE" >&2
  exit 2
fi
if=$1
net=/sys/class/net/$if
if [ ! -e "$net" ]; then
  echo "$0: $if: there is no such interface; ip link shows them" >&2
  exit 1
fi
if [ -e "$net/device/physfn" ]; then
  echo "$0: $if: it is a virtual function; configure the physical port" >&2
  exit 1
fi
if pgrep -x lldpad >/dev/null 2>&1; then
  echo "$0: lldpad runs and would set it its own way: systemctl disable --now lldpad" >&2
  exit 1
fi

# The RDMA device of this interface, and its port.
dev='' port=1
for file in /sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*; do
  if [ "$(cat "$file" 2>/dev/null)" = "$if" ]; then
    port=${{file%/gid_attrs/*}} port=${{port##*/}}
    dev=${{file#/sys/class/infiniband/}} dev=${{dev%%/*}}
    break
  fi
done

pci=$(basename "$(readlink -f "$net/device")")

# Another RDMA interface is in one of this one's IPv4 subnets.
shares_subnet() {{
  for file in /sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*; do
    other=$(cat "$file" 2>/dev/null) || continue
    [ "$other" != "$if" ] || continue
    if awk -v one="$if" -v two="$other" '
      $3 == "00000000" && $8 != "00000000" && $1 == one {{ own[$2 $8] = 1 }}
      $3 == "00000000" && $8 != "00000000" && $1 == two {{ theirs[$2 $8] = 1 }}
      END {{ for (subnet in own) if (subnet in theirs) exit 0; exit 1 }}' /proc/net/route; then
      return 0
    fi
  done
  return 1
}}

failed() {{
  echo "$0: $if: \"$*\" failed; what stands above it was done" >&2
  exit 1
}}

# run COMMAND...: shows it, and with --apply does it.
run() {{
  echo "$*"
  if ! $apply || "$@"; then return; fi
  # dcb sometimes says "Protocol error" of what the driver did: where a second begins in its middle.
  case "$1 ${{2:-}}" in
    "dcb ets" | "dcb pfc") if "$@"; then return; fi ;;
  esac
  failed "$*"
}}

# put FILE TEXT: writes into a file of the kernel's, where it has that.
put() {{
  [ -e "$1" ] || return 0
  echo "echo $2 >$1"
  if $apply; then echo "$2" >"$1" || failed "echo $2 >$1"; fi
}}

)sh";

constexpr std::string_view kTail = R"sh(
driver=$(basename "$(readlink -f "$net/device/driver")")
ofed=false
if [ -d "$net/ecn" ]; then ofed=true; fi
case $driver:$ofed in
{cases}  *)
    echo "$0: $if: how a NIC of the driver $driver is configured is not known" >&2
    exit 1
    ;;
esac
if ! $apply; then echo "# nothing was changed; $0 --apply $if does it"; fi
)sh";

/// Of a device that has them all.
TrafficClasses new_classes(const Wanted& wanted, unsigned cnp_priority) {
  return wanted_classes({{}, Ets{}}, kPriorities, wanted, cnp_priority);
}

/// What a part is set to when nothing is known of what it is now.
std::string new_value(Part part, const Wanted& wanted, unsigned cnp_priority) {
  switch (part) {
    case Part::kMtu:
      return fmt::to_string(wanted.mtu.value_or(9000));
    case Part::kPause:
      return "rx off tx off";
    case Part::kDscp:
      return fmt::format("{}:{} {}:{}", wanted.dscp, wanted.priority, wanted.cnp_dscp, cnp_priority);
    case Part::kUdpPort:
      return fmt::format("4791:{}", wanted.priority);
    case Part::kTrafficClass:
      return new_classes(wanted, cnp_priority).text();
    case Part::kCnpVlanPriority:
      return fmt::to_string(cnp_priority);
    case Part::kArpIgnore:
      return "1";
    case Part::kArpAnnounce:
    case Part::kRpFilter:
      return "2";
    case Part::kCnpDscp:
      return fmt::to_string(wanted.cnp_dscp);
    case Part::kCmTos:
      return fmt::to_string(wanted.tos());
    case Part::kPfc:
      return fmt::format("{}:on", wanted.priority);
    case Part::kNumaBalancing:
      return "0";
    case Part::kEcnNp:
    case Part::kEcnRp:
      return "1";
    case Part::kDcbx:
    case Part::kTrust:
      return {};
  }
  return {};
}

Names new_lists(Part part, const Wanted& wanted, unsigned cnp_priority) {
  if (part == Part::kTrafficClass) return new_classes(wanted, cnp_priority).lists();
  std::string list;
  for (unsigned p = 0; p < kPriorities; ++p) {
    list.append(list.empty() ? "" : ",").append(p == wanted.priority ? "1" : "0");
  }
  return {{"{list}", list}};
}

/// "dcb pfc set dev $if ..." in quotes where a shell needs them.
std::string shell_line(const std::string& line) {
  if (line.starts_with("> ")) {
    const auto words = words_of(line);
    return fmt::format("  put \"{}\" {}\n", words[1], words[2]);
  }
  std::string quoted = "  run";
  for (const std::string_view word : words_of(line)) {
    quoted += word.find('$') == std::string_view::npos ? fmt::format(" {}", word) : fmt::format(" \"{}\"", word);
  }
  return quoted + "\n";
}

/// When a part is to be set at all. ethtool fails where it has nothing to change.
std::string_view condition_of(Part part) {
  if (part == Part::kCmTos) return R"([ -n "$dev" ] && [ -d /sys/kernel/config/rdma_cm ])";
  if (part == Part::kArpIgnore || part == Part::kArpAnnounce || part == Part::kRpFilter) return "shares_subnet";
  if (part == Part::kPause) return R"(ethtool -a "$if" 2>/dev/null | grep -q '^[RT]X:.*on$')";
  return {};
}

std::string function_name(const Recipe& recipe) {
  return fmt::format("{}{}", words_of(recipe.drivers).front(), recipe.ofed ? "_ofed" : "");
}

std::string function(const Recipe& recipe, const Wanted& wanted) {
  std::string text = fmt::format("# {}\n{}() {{\n", recipe.name, function_name(recipe));
  for (const RecipeStep& step : recipe.steps) {
    const unsigned cnp_priority = wanted.cnp_priority.value_or(recipe.cnp_priority);
    Names names = {{"{if}", "$if"},
                   {"{dev}", "$dev"},
                   {"{port}", "$port"},
                   {"{pci}", "$pci"},
                   {"{priority}", fmt::to_string(wanted.priority)}};
    std::ranges::move(new_lists(step.part, wanted, cnp_priority), std::back_inserter(names));
    const std::string value = new_value(step.part, wanted, cnp_priority);
    std::string lines;
    for (const std::string& line : filled(step.set, names, value)) {
      lines += shell_line(line);
    }
    const std::string_view condition = condition_of(step.part);
    if (condition.empty()) {
      text += lines;
      continue;
    }
    text += fmt::format("  if {}; then\n", condition);
    for (const auto line : lines_of(lines)) text += fmt::format("  {}\n", line);
    text += "  fi\n";
  }
  return text + "}\n";
}

}  // namespace

std::string standalone_script(const Wanted& wanted) {
  std::string text = fmt::format(kHead, fmt::arg("priority", wanted.priority), fmt::arg("dscp", wanted.dscp),
                                 fmt::arg("cnp_dscp", wanted.cnp_dscp));
  std::string cases;
  for (const Recipe& recipe : recipes()) {
    text += function(recipe, wanted) + "\n";
    std::string patterns;
    for (const std::string_view driver : words_of(recipe.drivers)) {
      patterns += fmt::format("{}{}:{}", patterns.empty() ? "" : " | ", driver, recipe.ofed ? "true" : "*");
    }
    cases += fmt::format("  {}) {} ;;\n", patterns, function_name(recipe));
  }
  text.pop_back();
  return text + fmt::format(kTail, fmt::arg("cases", cases));
}

}  // namespace tensorwire::host
