// All or nothing: the recipes' commands on two ports that exist only as facts, with a failure at each command in turn.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "host/configure/apply.hpp"
#include "host/parse/text.hpp"

namespace tensorwire::host {
namespace {

enum class Mishap : std::uint8_t {
  kRefused,   ///< the command fails and does nothing
  kHalfDone,  ///< it does what it should, and fails
  kDeaf,      ///< it says that it was done, and does nothing
};

template <class T>
Fact<T> known(T value) {
  return {std::move(value), "here"};
}

struct Family {
  const char* driver;
  bool ofed;
};
constexpr Family kFamilies[] = {{"mlx5_core", true}, {"mlx5_core", false}, {"bnxt_en", false}};

/// A host of two ports which understands the commands that recipes use, as the programs of these names do.
class CommandHost final : public Effects {
 public:
  /// Both as a driver leaves them; the second has some of it right already.
  explicit CommandHost(const Family& family) {
    for (const char* name : {"eth2", "eth3"}) {
      PortState port;
      port.netdev = name;
      port.device = std::string{"dev_"} + name;
      port.driver = known<std::string>(family.driver);
      port.ofed = family.ofed;
      port.mtu = known(1500U);
      port.qos.host_controls = known(!family.ofed);  // dcb cannot set that back, mlnx_qos can
      port.qos.pause = known(GlobalPause{true, true});
      port.qos.trust = known(Trust::kPcp);
      DcbApp apps{};
      apps.priority_of_dscp.fill(-1);
      port.apps = known(apps);
      port.qos.traffic_class = known(std::array<std::uint8_t, kPriorities>{});
      Ets shares;
      shares.algorithm.fill(family.driver == std::string_view{"bnxt_en"} ? Tsa::kStrict : Tsa::kVendor);
      port.qos.ets = known(shares);
      port.shares_subnet = known(true);
      port.arp_ignore = port.arp_announce = known(SysctlPair{});
      port.rp_filter = known(SysctlPair{0, 1});
      port.pci = std::string{"pci_"} + name;
      if (family.driver == std::string_view{"mlx5_core"}) port.qos.cnp_dscp = known(46U);
      port.qos.pfc = known(PrioritySet{});
      if (family.ofed) {
        port.qos.ecn_np = known(PrioritySet{});
        port.qos.ecn_rp = known(PrioritySet{1});
        port.qos.cnp_vlan_priority = known(0U);
      }
      port.cm_tos = known(0U);
      port.numa_balancing = known(1U);
      ports[name] = port;
    }
    PortState& second = ports["eth3"];
    second.mtu = known(9000U);
    second.qos.pfc = known(PrioritySet{0b10001});
  }

  std::string perform(const Action& action) override {
    const bool mishap = ++performed_ == mishap_at;
    if (mishap && kind == Mishap::kRefused) return "refused";
    if (mishap && kind == Mishap::kDeaf) return {};
    const bool understood = action.program.empty() ? write(action.path, action.text) : run(action.program);
    EXPECT_TRUE(understood) << action.shell();
    return mishap ? "failed at the end" : "";
  }
  PortState read(const std::string& netdev) override { return ports.at(netdev); }
  std::vector<Witness> hear(const PortState& /*state*/, const Wanted& /*wanted*/) override { return heard; }

  /// All that can be changed, as text.
  [[nodiscard]] std::string everything() const {
    std::string text;
    for (const auto& [name, port] : ports) {
      text += name + ": " + std::to_string(*port.mtu) + (*port.qos.host_controls ? " host" : " firmware") +
              (*port.qos.trust == Trust::kDscp ? " dscp" : " pcp") + " pfc " + port.qos.pfc->to_string();
      text += " pause " + std::to_string(int{port.qos.pause->receives} + 2 * int{port.qos.pause->sends}) + " tc";
      for (const auto tc : *port.qos.traffic_class) text += " " + std::to_string(tc);
      for (const Tsa algorithm : port.qos.ets->algorithm) text += " " + std::string{to_string(algorithm)};
      for (const auto share : port.qos.ets->share) text += " " + std::to_string(share);
      for (const auto* pair : {&port.arp_ignore, &port.arp_announce, &port.rp_filter})
        text += " " + std::to_string((*pair)->own);
      text += " vlan " + std::to_string(port.qos.cnp_vlan_priority.value_or(0));
      text += " apps";
      for (const int priority : port.apps->priority_of_dscp) text += " " + std::to_string(priority);
      text += " udp " + std::to_string(int{port.apps->priority_of_rocev2.value_or(99)});
      text += " ecn " + port.qos.ecn_np.value_or({}).to_string() + port.qos.ecn_rp.value_or({}).to_string() + " " +
              std::to_string(port.qos.cnp_dscp.value_or(0)) + " tos " + std::to_string(*port.cm_tos) + " numa " +
              std::to_string(*port.numa_balancing) + "\n";
    }
    return text;
  }

  std::map<std::string, PortState> ports;
  std::vector<Witness> heard;
  int mishap_at = 0;  ///< counted from 1
  Mishap kind = Mishap::kRefused;
  [[nodiscard]] int performed() const noexcept { return performed_; }

 private:
  using Words = std::vector<std::string>;

  void set_app(PortState& port, unsigned code, int priority) {
    DcbApp apps = *port.apps;
    apps.priority_of_dscp[code] = static_cast<std::int8_t>(priority);
    put_apps(port, apps);
  }
  /// The first entry makes the port trust DSCP, and so does the last one's end the opposite.
  static void put_apps(PortState& port, DcbApp apps) {
    apps.has_dscp = std::ranges::any_of(apps.priority_of_dscp, [](int priority) { return priority >= 0; });
    port.apps = known(apps);
    port.qos.trust = known(apps.has_dscp ? Trust::kDscp : Trust::kPcp);
  }
  static unsigned number(std::string_view word) { return number_in<unsigned>(word).value_or(999); }

  bool run(const Words& words) {
    if (words[0] == "mkdir") return true;
    if (words[0] == "ip") {
      ports.at(words[4]).mtu = known(number(words[6]));
      return true;
    }
    if (words[0] == "ethtool") {
      const auto on = [&](const char* side) { return *(std::ranges::find(words, side) + 1) == "on"; };
      ports.at(words[2]).qos.pause = known(GlobalPause{on("rx"), on("tx")});
      return true;
    }
    return words[0] == "dcb" ? run_dcb(words) : words[0] == "mlnx_qos" && run_mlnx_qos(words);
  }

  bool run_dcb(const Words& words) {
    PortState& port = ports.at(words[4]);
    const Words entries(words.begin() + 6, words.end());
    if (words[1] == "dcbx") {
      port.qos.host_controls = known(true);
    } else if (words[1] == "app") {
      for (const std::string& entry : entries) {
        const auto colon = entry.find(':');
        const unsigned code = number(entry.substr(0, colon));
        const int priority = words[2] == "del" ? -1 : static_cast<int>(number(entry.substr(colon + 1)));
        if (words[5] == "dscp-prio") {
          set_app(port, code, priority);
        } else {
          DcbApp apps = *port.apps;
          apps.priority_of_rocev2.reset();
          if (priority >= 0) apps.priority_of_rocev2 = static_cast<std::uint8_t>(priority);
          put_apps(port, apps);
        }
      }
    } else if (words[1] == "ets") {
      set_ets(port, Words(words.begin() + 5, words.end()));
    } else if (words[1] == "pfc") {
      PrioritySet set;
      for (const std::string& entry : entries) {
        if (entry != "all:off") set.set(number(entry.substr(0, 1)));
      }
      port.qos.pfc = known(set);
    } else {
      return false;
    }
    return true;
  }

  /// "prio-tc 0:0 ... tc-tsa 0:ets ... tc-bw 0:9 ...".
  static void set_ets(PortState& port, const Words& words) {
    auto classes = *port.qos.traffic_class;
    Ets ets = *port.qos.ets;
    std::string what;
    for (const std::string& word : words) {
      if (word.find(':') == std::string::npos) {
        what = word;
        continue;
      }
      const unsigned at = number(word.substr(0, 1));
      if (what == "prio-tc") classes[at] = static_cast<std::uint8_t>(number(word.substr(2)));
      if (what == "tc-tsa") ets.algorithm[at] = tsa_named(word.substr(2)).value_or(Tsa::kShaper);
      if (what == "tc-bw") ets.share[at] = static_cast<std::uint8_t>(number(word.substr(2)));
    }
    port.qos.traffic_class = known(classes);
    port.qos.ets = known(ets);
  }

  bool run_mlnx_qos(const Words& words) {
    PortState& port = ports.at(words[2]);
    const auto list = split(words[4], ',');
    if (words[3] == "-d") {
      port.qos.host_controls = known(words[4] == "os");
    } else if (words[3] == "--trust") {
      DcbApp apps = *port.apps;
      for (unsigned code = 0; code < kDscps; ++code) {
        apps.priority_of_dscp[code] = static_cast<std::int8_t>(words[4] == "dscp" ? static_cast<int>(code >> 3) : -1);
      }
      put_apps(port, apps);
    } else if (words[3] == "--dscp2prio") {
      set_app(port, number(list[1]), list[0] == "set" ? static_cast<int>(number(list[2])) : -1);
    } else if (words[3] == "--prio_tc") {
      const auto algorithms = split(words[6], ',');
      const auto shares = split(words[8], ',');
      EXPECT_EQ(words[5] + words[7], "--tsa--tcbw");
      std::array<std::uint8_t, kPriorities> classes{};
      Ets ets;
      for (unsigned i = 0; i < kPriorities; ++i) {
        classes[i] = static_cast<std::uint8_t>(number(list[i]));
        ets.algorithm[i] = tsa_named(algorithms[i]).value_or(Tsa::kShaper);
        ets.share[i] = static_cast<std::uint8_t>(number(shares[i]));
      }
      port.qos.traffic_class = known(classes);
      port.qos.ets = known(ets);
    } else if (words[3] == "--pfc") {
      PrioritySet set;
      for (unsigned p = 0; p < kPriorities; ++p) set[p] = list[p] == "1";
      port.qos.pfc = known(set);
    } else {
      return false;
    }
    return true;
  }

  bool write(const std::string& path, const std::string& text) {
    if (path == "/proc/sys/kernel/numa_balancing") {
      for (auto& [name, port] : ports) port.numa_balancing = known(number(text));
      return true;
    }
    for (auto& [name, port] : ports) {
      const std::string ecn = "/sys/class/net/" + name + "/ecn/";
      const std::string arp = "/proc/sys/net/ipv4/conf/" + name + "/";
      if (path == ecn + "roce_np/cnp_dscp" || path == "/sys/kernel/debug/mlx5/" + port.pci + "/cc_params/np_cnp_dscp") {
        port.qos.cnp_dscp = known(number(text));
      } else if (path == ecn + "roce_np/cnp_802p_prio") {
        port.qos.cnp_vlan_priority = known(number(text));
      } else if (path == arp + "arp_ignore" || path == arp + "arp_announce" || path == arp + "rp_filter") {
        auto& pair = path == arp + "arp_ignore"  ? port.arp_ignore
                     : path == arp + "rp_filter" ? port.rp_filter
                                                 : port.arp_announce;
        pair = known(SysctlPair{number(text), pair->of_all});
      } else if (path == ecn + "roce_np/enable/3" || path == ecn + "roce_rp/enable/3") {
        auto& enabled = path == ecn + "roce_np/enable/3" ? port.qos.ecn_np : port.qos.ecn_rp;
        PrioritySet set = *enabled;
        enabled = known(set.set(3, text == "1"));
      } else if (path == "/sys/kernel/config/rdma_cm/" + port.device + "/ports/1/default_roce_tos") {
        port.cm_tos = known(number(text));
      } else {
        continue;
      }
      return true;
    }
    return false;
  }

  int performed_ = 0;
};

std::vector<PortDifference> differences_of(CommandHost& host) {
  std::vector<PortDifference> all;
  for (const char* name : {"eth2", "eth3"}) all.push_back(find_difference(host.read(name), {}));
  return all;
}

class EachRecipe : public testing::TestWithParam<Family> {};

TEST_P(EachRecipe, SetsBothPortsAndASecondTimeNothing) {
  CommandHost host{GetParam()};
  const Applied applied = apply(differences_of(host), {}, host);
  EXPECT_TRUE(applied.ok()) << applied.failure;
  for (const PortDifference& difference : differences_of(host)) EXPECT_TRUE(difference.changes.empty());
}

TEST_P(EachRecipe, AFailureAtEachCommandInTurnLeavesNothingBehind) {
  CommandHost whole{GetParam()};
  ASSERT_TRUE(apply(differences_of(whole), {}, whole).ok());
  const int commands = whole.performed();
  ASSERT_GT(commands, 12);
  for (const Mishap kind : {Mishap::kRefused, Mishap::kHalfDone, Mishap::kDeaf}) {
    for (int at = 1; at <= commands; ++at) {
      CommandHost host{GetParam()};
      host.mishap_at = at;
      host.kind = kind;
      const std::string before = host.everything();
      const Applied applied = apply(differences_of(host), {}, host);
      if (applied.ok()) {  // a command that had nothing to do did not do it
        EXPECT_EQ(kind, Mishap::kDeaf);
        for (const PortDifference& difference : differences_of(host)) EXPECT_TRUE(difference.changes.empty());
        continue;
      }
      EXPECT_TRUE(applied.left_over.empty()) << applied.left_over.front();
      EXPECT_EQ(host.everything(), before) << "command " << at << ": " << applied.failure;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachRecipe, testing::ValuesIn(kFamilies),
                         [](const auto& of) { return std::string{of.param.driver} + (of.param.ofed ? "_ofed" : ""); });

TEST(Apply, AWitnessThatContradictsTakesItBack) {
  CommandHost host{{"mlx5_core", false}};
  host.heard = {{Part::kPfc, true, "3", "there"}, {Part::kPause, false, "on", "elsewhere"}};
  const std::string before = host.everything();
  const Applied applied = apply(differences_of(host), {}, host);
  EXPECT_EQ(applied.failure, "eth2: global pause was set to rx off tx off, and elsewhere says on");
  EXPECT_TRUE(applied.left_over.empty());
  EXPECT_EQ(host.everything(), before);
}

TEST(Apply, EachPartThatWasChangedIsReadBackAndSaysHow) {
  CommandHost host{{"mlx5_core", false}};
  host.heard = {{Part::kPfc, true, "3", "ethtool -S eth2"}, {Part::kTrust, false, "pcp", "a file of another driver"}};
  const auto differences = differences_of(host);
  const Applied applied = apply(differences, {}, host);
  ASSERT_TRUE(applied.ok()) << applied.failure;
  EXPECT_EQ(applied.read_back.size(), differences[0].changes.size() + differences[1].changes.size());
  const auto says = [&](const char* line) { return std::ranges::count(applied.read_back, line) == 1; };
  EXPECT_TRUE(says("eth2: PFC: read by netlink, as dcb set it; also by ethtool -S eth2"));
  EXPECT_TRUE(says("eth2: RDMA-CM ToS: read in the file that was written"));
}

TEST(Apply, WhatCannotBeSetBackIsNamed) {
  CommandHost host{{"mlx5_core", false}};
  host.ports["eth2"].qos.host_controls = known(false);
  host.mishap_at = 10;
  const Applied applied = apply(differences_of(host), {}, host);
  ASSERT_EQ(applied.left_over.size(), 1U);
  EXPECT_EQ(applied.left_over[0], "eth2: DCBX is host and was firmware");
}

}  // namespace
}  // namespace tensorwire::host
