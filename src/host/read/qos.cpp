// An interface's QoS has up to four sources: iproute2's dcb (the kernel's own interface), mlnx_qos, Broadcom's niccli,
// and the files of MLNX_OFED and debugfs. The first that answers counts; the fact says which it was.
#include "host/parse/qos_text.hpp"
#include "host/read/parts.hpp"
#include "host/read/read.hpp"

namespace tensorwire::host {

namespace {

template <class Printed, class T, class Member>
void fill_from(const Fact<Printed>& tool, Member member, Fact<T>& fact) {
  if (fact) return;
  if (tool && (*tool).*member) fact = {*((*tool).*member), tool.where()};
}

/// "Pause parameters for eth2: ... RX: off TX: off".
std::optional<GlobalPause> pause_in(std::string_view text) {
  const auto receives = between(text, "RX:", "\n");
  const auto sends = between(text, "TX:", "\n");
  if (!receives || !sends) return std::nullopt;
  return GlobalPause{trimmed(*receives) == "on", trimmed(*sends) == "on"};
}

/// DSCP is the only selector that mlx5 takes: an entry for one switches the port's trust to DSCP.
void take_app_table(const Fact<DcbApp>& app, Qos& qos) {
  if (!app) {
    qos.trust = Fact<Trust>::unknown(app.why(), app.where());
    qos.priority_of_dscp = Fact<std::array<std::uint8_t, kDscps>>::unknown(app.why(), app.where());
    return;
  }
  qos.trust = {app->has_dscp ? Trust::kDscp : Trust::kPcp, app.where()};
  std::array<std::uint8_t, kDscps> map{};
  for (unsigned dscp = 0; dscp < kDscps; ++dscp) {
    const std::int8_t entry = app->priority_of_dscp[dscp];
    map[dscp] = static_cast<std::uint8_t>(entry >= 0                ? entry
                                          : app->priority_of_rocev2 ? *app->priority_of_rocev2
                                                                    : dscp >> 3);
  }
  qos.priority_of_dscp = {map, app.where()};
}

void read_niccli(Tree& tree, const std::string& netdev, Qos& qos) {
  const Fact<NiccliQos> printed = fact_of_tool(
      tree, tool::kNiccli, netdev, [](std::string_view text) { return std::optional{parse_niccli_qos(text)}; });
  fill_from(printed, &NiccliQos::pfc, qos.pfc);
  fill_from(printed, &NiccliQos::traffic_class, qos.traffic_class);
  if (!qos.trust && printed && printed->app) take_app_table({*printed->app, printed.where()}, qos);
}

/// The priorities whose file in ecn/roce_{np,rp}/enable/ holds 1.
Fact<PrioritySet> ecn_enabled(Tree& tree, const std::string& folder) {
  PrioritySet set;
  for (unsigned priority = 0; priority < kPriorities; ++priority) {
    const auto flag = number_in_file<int>(tree, folder + "/" + std::to_string(priority));
    if (!flag) return Fact<PrioritySet>::unknown(flag.why(), folder);
    set[priority] = *flag != 0;
  }
  return {set, folder};
}

/// What the kernel says of it by netlink.
void ask_kernel(Tree& tree, const std::string& netdev, Qos& qos) {
  qos.pfc = fact_of_tool(tree, tool::kDcbPfc, netdev, parse_dcb_pfc);
  const Fact<DcbEts> ets = fact_of_tool(tree, tool::kDcbEts, netdev, parse_dcb_ets);
  qos.traffic_class = ets.then([](const DcbEts& all) { return all.traffic_class; });
  if (ets && ets->ets) qos.ets = {*ets->ets, ets.where()};
  if (ets && ets->class_count) qos.class_count = {*ets->class_count, ets.where()};
  qos.host_controls = fact_of_tool(tree, tool::kDcbx, netdev, parse_dcbx);
  take_app_table(fact_of_tool(tree, tool::kDcbApp, netdev, parse_dcb_app), qos);
  const Fact<DcbBuffer> buffer = fact_of_tool(tree, tool::kDcbBuffer, netdev, parse_dcb_buffer);
  qos.buffer = buffer.then([](const DcbBuffer& all) { return all.buffer; });
  qos.buffer_bytes = buffer.then([](const DcbBuffer& all) { return all.bytes; });
}

/// mlnx_qos is a Python program and takes a second: it is run only for what the kernel did not say.
void fill_from_mlnx_qos(Tree& tree, const std::string& netdev, Qos& qos) {
  if (qos.pfc && qos.traffic_class && qos.host_controls && qos.trust && qos.priority_of_dscp && qos.buffer) return;
  const Fact<MlnxQos> mlnx = fact_of_tool(tree, tool::kMlnxQos, netdev,
                                          [](std::string_view text) { return std::optional{parse_mlnx_qos(text)}; });
  fill_from(mlnx, &MlnxQos::pfc, qos.pfc);
  fill_from(mlnx, &MlnxQos::traffic_class, qos.traffic_class);
  fill_from(mlnx, &MlnxQos::ets, qos.ets);
  fill_from(mlnx, &MlnxQos::host_controls, qos.host_controls);
  fill_from(mlnx, &MlnxQos::trust, qos.trust);
  fill_from(mlnx, &MlnxQos::priority_of_dscp, qos.priority_of_dscp);
  fill_from(mlnx, &MlnxQos::buffer_bytes, qos.buffer_bytes);
  fill_from(mlnx, &MlnxQos::buffer, qos.buffer);
}

/// MLNX_OFED's files.
void fill_from_ofed(Tree& tree, const std::string& netdev, Qos& qos) {
  const std::string folder = "/sys/class/net/" + netdev;
  if (!qos.trust) {
    const auto trust = fact_in_file(tree, folder + "/qos/trust", [](std::string_view text) {
      const std::string_view word = trimmed(text);
      return word == "dscp" ? std::optional{Trust::kDscp} : word == "pcp" ? std::optional{Trust::kPcp} : std::nullopt;
    });
    if (trust) qos.trust = trust;
  }
  if (!qos.priority_of_dscp) {
    const auto map = fact_in_file(tree, folder + "/qos/dscp2prio", parse_dscp2prio);
    if (map) qos.priority_of_dscp = map;
  }
  qos.ecn_np = ecn_enabled(tree, folder + "/ecn/roce_np/enable");
  qos.ecn_rp = ecn_enabled(tree, folder + "/ecn/roce_rp/enable");
  qos.cnp_dscp = number_in_file<unsigned>(tree, folder + "/ecn/roce_np/cnp_dscp");
  qos.cnp_vlan_priority = number_in_file<unsigned>(tree, folder + "/ecn/roce_np/cnp_802p_prio");
}

/// The mask of priorities whose congestion control mlx5's firmware has on, at both ends; read by its tool.
void fill_from_firmware(const RdmaDevice& device, Qos& qos) {
  if (qos.ecn_np || !device.firmware_settings) return;
  const auto mask = device.firmware_settings->find("ROCE_CC_PRIO_MASK_P1");
  const auto bits = mask != device.firmware_settings->end() ? number_in<std::uint8_t>(mask->second) : std::nullopt;
  if (!bits) return;
  qos.ecn_np = qos.ecn_rp = {PrioritySet{*bits}, device.firmware_settings.where() + ": ROCE_CC_PRIO_MASK_P1"};
}

/// mlx5's debugfs, which both of its drivers have.
void fill_from_debugfs(const RdmaDevice& device, Qos& qos) {
  const auto take = [&](const char* name, unsigned below, Fact<unsigned>& fact) {
    const auto value = counter(device.dcqcn, name);
    if (!fact && value.value_or(below) < below)
      fact = {static_cast<unsigned>(*value), device.dcqcn.where() + "/" + name};
  };
  take("np_cnp_dscp", kDscps, qos.cnp_dscp);
  take("np_cnp_prio", kPriorities, qos.cnp_vlan_priority);
}

}  // namespace

Qos read_qos(Tree& tree, const std::string& netdev, const RdmaDevice* device) {
  const NicFamily family = device != nullptr ? device->family : NicFamily::kOther;
  Qos qos;
  ask_kernel(tree, netdev, qos);
  if (device == nullptr || family == NicFamily::kMlx5) fill_from_mlnx_qos(tree, netdev, qos);
  if (family == NicFamily::kBroadcom && (!qos.pfc || !qos.trust)) read_niccli(tree, netdev, qos);
  fill_from_ofed(tree, netdev, qos);
  if (device != nullptr) {
    fill_from_firmware(*device, qos);
    fill_from_debugfs(*device, qos);
  }
  qos.pause = fact_of_tool(tree, tool::kEthtoolPause, netdev, pause_in);
  return qos;
}

}  // namespace tensorwire::host
