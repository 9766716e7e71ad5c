// The groups of rules, one file each. A new group is named here and in all_rules().
#pragma once

#include "host/rule.hpp"

namespace tensorwire::host {

[[nodiscard]] RuleGroup gid_rules();
[[nodiscard]] RuleGroup pfc_rules();
[[nodiscard]] RuleGroup ecn_rules();
[[nodiscard]] RuleGroup qos_rules();
[[nodiscard]] RuleGroup mtu_rules();
[[nodiscard]] RuleGroup gpudirect_rules();
[[nodiscard]] RuleGroup link_rules();
[[nodiscard]] RuleGroup net_rules();
[[nodiscard]] RuleGroup device_rules();
[[nodiscard]] RuleGroup process_rules();
[[nodiscard]] RuleGroup nccl_rules();

}  // namespace tensorwire::host
