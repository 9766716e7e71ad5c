#include "host/configure/difference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "host/configure/traffic_classes.hpp"

namespace tensorwire::host {
namespace {

/// One part: what it is, what it should be, and both in the words of the commands.
struct WantedSetting {
  std::string now;
  std::string wanted;
  std::string old_value;  ///< of what was there; empty: nothing was
  std::string new_value;
  std::string added;  ///< entries that were not there
  Names old_lists = {}, new_lists = {};
};

/// A setting, or why there is none.
struct Reading {
  std::optional<WantedSetting> setting;
  std::string why_not;
  bool applies = true;  ///< false: nobody wants anything of it here
};

template <class T, class Make>
Reading reading(const Fact<T>& fact, Make make) {
  if (!fact) return {{}, fmt::format("{} ({})", fact.why(), fact.where())};
  return {make(*fact), {}, true};
}

std::string priorities(const PrioritySet& set) {
  std::string text;
  for (unsigned p = 0; p < kPriorities; ++p) {
    if (set[p]) text.append(text.empty() ? "" : ",").append(fmt::to_string(p));
  }
  return text.empty() ? "none" : text;
}

/// "3:on": what follows "all:off".
std::string switched_on(const PrioritySet& set) {
  std::string text;
  for (unsigned p = 0; p < kPriorities; ++p) {
    if (set[p]) text.append(text.empty() ? "" : " ").append(fmt::format("{}:on", p));
  }
  return text;
}

/// "0,0,0,1,0,0,0,0"
template <class Of>
std::string list_of(const Of& of) {
  std::string text;
  for (unsigned p = 0; p < kPriorities; ++p) text.append(p == 0 ? "" : ",").append(fmt::to_string(unsigned{of[p]}));
  return text;
}

WantedSetting plain(std::string now, std::string wanted) { return {now, wanted, now, wanted, {}}; }

Reading mtu(const PortState& state, const Wanted& wanted) {
  return reading(state.mtu, [&](unsigned now) {
    return plain(fmt::to_string(now), fmt::to_string(wanted.mtu.value_or(std::max(now, kSmallestMtu))));
  });
}

Reading dcbx(const PortState& state) {
  return reading(state.qos.host_controls, [](bool host) { return plain(host ? "host" : "firmware", "host"); });
}

Reading pause(const PortState& state) {
  const auto text = [](const GlobalPause& on) {
    return fmt::format("rx {} tx {}", on.receives ? "on" : "off", on.sends ? "on" : "off");
  };
  return reading(state.qos.pause, [&](const GlobalPause& now) { return plain(text(now), text({})); });
}

void add_entry(std::string& list, unsigned key, unsigned priority) {
  list.append(list.empty() ? "" : " ").append(fmt::format("{}:{}", key, priority));
}

Reading trust(const PortState& state) {
  return reading(state.qos.trust, [](Trust now) { return plain(now == Trust::kDscp ? "dscp" : "pcp", "dscp"); });
}

/// The priority of two DSCPs; an entry that is not there has none.
Reading dscp(const PortState& state, const Wanted& wanted, unsigned cnp_priority) {
  if (!state.qos.trust) return reading(state.qos.trust, [](Trust) { return WantedSetting{}; });
  return reading(state.apps, [&](const DcbApp& apps) {
    WantedSetting setting;
    for (const auto& [code, priority] : {std::pair{wanted.dscp, wanted.priority}, {wanted.cnp_dscp, cnp_priority}}) {
      add_entry(setting.new_value, code, priority);
      if (const int old = apps.priority_of_dscp[code]; old >= 0) {
        add_entry(setting.old_value, code, static_cast<unsigned>(old));
      } else {
        add_entry(setting.added, code, priority);
      }
    }
    const bool trusted = state.qos.trust.is(Trust::kDscp);
    setting.now = !trusted ? "not looked at (trust pcp)" : setting.old_value.empty() ? "by default" : setting.old_value;
    setting.wanted = setting.new_value;
    return setting;
  });
}

Reading udp_port(const PortState& state, const Wanted& wanted) {
  return reading(state.apps, [&](const DcbApp& apps) {
    const std::string new_value = fmt::format("4791:{}", wanted.priority);
    if (!apps.priority_of_rocev2) return WantedSetting{"by default", new_value, {}, new_value, new_value};
    return plain(fmt::format("4791:{}", *apps.priority_of_rocev2), new_value);
  });
}

Reading traffic_classes(const PortState& state, const Wanted& wanted, unsigned cnp_priority) {
  const Qos& qos = state.qos;
  // mlnx_qos sets all of it at once, and what is not known cannot be set back.
  if (state.ofed && !qos.ets) return reading(qos.ets, [](const Ets&) { return WantedSetting{}; });
  return reading(qos.traffic_class, [&](const auto& map) {
    const TrafficClasses now{map, qos.ets ? std::optional{*qos.ets} : std::nullopt};
    const TrafficClasses then = wanted_classes(now, qos.class_count.value_or(kPriorities), wanted, cnp_priority);
    return WantedSetting{now.shown(), then.shown(), now.text(), then.text(), {}, now.lists(), then.lists()};
  });
}

/// Settings of ARP matter where another RDMA interface is in the same subnet. `good`: whether a value will do; the
/// larger of the interface's own and that of all counts.
template <class Good>
Reading shared_subnet(const PortState& state, const Fact<SysctlPair>& fact, unsigned wanted, Good good) {
  if (!state.shares_subnet) return reading(state.shares_subnet, [](bool) { return WantedSetting{}; });
  if (!*state.shares_subnet) return {{}, {}, false};
  return reading(fact, [&](const SysctlPair& now) {
    const bool is_good = good(std::max(now.own, now.of_all));
    return plain(fmt::to_string(now.own), fmt::to_string(is_good ? now.own : wanted));
  });
}

Reading ecn(const Fact<PrioritySet>& enabled, const Wanted& wanted) {
  return reading(enabled, [&](const PrioritySet& set) {
    return WantedSetting{set[wanted.priority] ? "on" : "off", "on", set[wanted.priority] ? "1" : "0", "1", {}};
  });
}

Reading number(const Fact<unsigned>& fact, unsigned wanted) {
  return reading(fact, [&](unsigned now) { return plain(fmt::to_string(now), fmt::to_string(wanted)); });
}

/// What is wanted says "on 3" and "off elsewhere" at once.
Reading pfc(const PortState& state, const Wanted& wanted) {
  return reading(state.qos.pfc, [&](const PrioritySet& now) {
    PrioritySet only;
    only.set(wanted.priority);
    return WantedSetting{priorities(now),
                         priorities(only),
                         switched_on(now),
                         switched_on(only),
                         {},
                         {{"{list}", list_of(now)}},
                         {{"{list}", list_of(only)}}};
  });
}

Reading read(Part part, const PortState& state, const Wanted& wanted, unsigned cnp_priority) {
  switch (part) {
    case Part::kMtu:
      return mtu(state, wanted);
    case Part::kDcbx:
      return dcbx(state);
    case Part::kPause:
      return pause(state);
    case Part::kTrust:
      return trust(state);
    case Part::kDscp:
      return dscp(state, wanted, cnp_priority);
    case Part::kUdpPort:
      return udp_port(state, wanted);
    case Part::kTrafficClass:
      return traffic_classes(state, wanted, cnp_priority);
    case Part::kEcnNp:
      return ecn(state.qos.ecn_np, wanted);
    case Part::kEcnRp:
      return ecn(state.qos.ecn_rp, wanted);
    case Part::kCnpDscp:
      return number(state.qos.cnp_dscp, wanted.cnp_dscp);
    case Part::kCnpVlanPriority:
      return number(state.qos.cnp_vlan_priority, cnp_priority);
    case Part::kArpIgnore:
      return shared_subnet(state, state.arp_ignore, 1, [](unsigned value) { return value == 1 || value == 2; });
    case Part::kArpAnnounce:
      return shared_subnet(state, state.arp_announce, 2, [](unsigned value) { return value == 2; });
    case Part::kRpFilter:
      return shared_subnet(state, state.rp_filter, 2, [](unsigned value) { return value == 0 || value == 2; });
    case Part::kCmTos:
      return number(state.cm_tos, wanted.tos());
    case Part::kNumaBalancing:
      return number(state.numa_balancing, 0);
    case Part::kPfc:
      return pfc(state, wanted);
  }
  return {};
}

void append(std::vector<Action>& actions, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) actions.push_back(action_of(line));
}

Names joined(const Names& names, const Names& more) {
  Names all = names;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Change change(const RecipeStep& step, const WantedSetting& setting, const Names& names) {
  Change change{step.part, setting.now, setting.wanted, {}, {}};
  append(change.set, filled(step.set, joined(names, setting.new_lists), setting.new_value));
  if (!setting.added.empty()) append(change.undo, filled(step.remove, names, setting.added));
  if (setting.added != setting.new_value) {
    append(change.undo, filled(step.undo, joined(names, setting.old_lists), setting.old_value));
  }
  return change;
}

std::vector<std::string> reasons_to_refuse(const PortState& state, const Recipe* recipe) {
  std::vector<std::string> all;
  if (recipe == nullptr) {
    all.push_back(state.driver ? fmt::format("how a NIC of the driver {} is configured is not known", *state.driver)
                               : fmt::format("it is no NIC: {} ({})", state.driver.why(), state.driver.where()));
  }
  if (state.virtual_function) all.emplace_back("it is a virtual function: its port belongs to the physical one");
  if (state.lldpad) all.emplace_back("lldpad runs and would set it its own way: systemctl disable --now lldpad");
  return all;
}

/// The kernel's own drivers have no setting for ECN. What the firmware's tool says counts, then what the port did.
void judge_ecn(Part part, const PortState& state, const Wanted& wanted, PortDifference& difference) {
  const bool is_np = part == Part::kEcnNp;
  const auto& setting = is_np ? state.qos.ecn_np : state.qos.ecn_rp;
  const auto& counted = is_np ? state.congestion.sent : state.congestion.handled;
  if (setting && setting->test(wanted.priority)) {
    difference.equal.push_back(part);
  } else if (setting) {
    difference.notes.push_back(fmt::format("{}: off for priority {} ({}); only the firmware's tool changes that",
                                           name_of(part), wanted.priority, setting.where()));
  } else if (counted.value_or(0) > 0) {
    difference.notes.push_back(fmt::format("{}: it works: the port {} {} CNPs; this driver has no setting for it",
                                           name_of(part), is_np ? "sent" : "obeyed", *counted));
  } else {
    difference.unknown.push_back(fmt::format("{}: this driver has no setting for it, and {}", name_of(part),
                                             counted ? "no CNP was counted that would prove it" : "no counter tells"));
  }
}

}  // namespace

bool PortDifference::flaps_link() const {
  return std::ranges::any_of(changes, [](const Change& c) { return c.part == Part::kPfc || c.part == Part::kMtu; });
}

std::string PortDifference::why_not_judged() const {
  for (const Part part : {Part::kPfc, Part::kDscp}) {
    if (std::ranges::count(unread, part) != 0) return fmt::format("{} cannot be read", name_of(part));
  }
  return {};
}

PortDifference find_difference(const PortState& state, const Wanted& wanted) {
  const Recipe* const recipe = find_recipe(state.driver.value_or(""), state.ofed);
  PortDifference difference;
  difference.netdev = state.netdev;
  difference.refusals = reasons_to_refuse(state, recipe);
  if (recipe == nullptr) return difference;
  difference.recipe = recipe->name;
  const Names names = {{"{if}", state.netdev},
                       {"{dev}", state.device},
                       {"{port}", fmt::to_string(state.port)},
                       {"{pci}", state.pci},
                       {"{priority}", fmt::to_string(wanted.priority)}};
  for (std::size_t i = 0; i < kParts; ++i) {
    const auto part = static_cast<Part>(i);
    const RecipeStep* const step = recipe->step(part);
    if (step == nullptr) {
      if (part == Part::kEcnNp || part == Part::kEcnRp) judge_ecn(part, state, wanted, difference);
      continue;
    }
    const Reading found = read(part, state, wanted, wanted.cnp_priority.value_or(recipe->cnp_priority));
    if (!found.applies) continue;
    if (!found.setting) {
      difference.unknown.push_back(fmt::format("{}: {}", name_of(part), found.why_not));
      difference.unread.push_back(part);
    } else if (found.setting->now == found.setting->wanted) {
      difference.equal.push_back(part);
    } else {
      difference.changes.push_back(change(*step, *found.setting, names));
    }
  }
  if (state.shares_subnet.is(true)) {
    difference.notes.emplace_back(
        "routes: another RDMA interface is in this subnet, so each needs a routing table of its own, which is not set "
        "here "
        "(tensorwire doctor has the commands, TW-NET-001)");
  }
  return difference;
}

}  // namespace tensorwire::host
