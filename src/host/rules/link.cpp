// The PCIe links of NICs and GPUs, and the links of the NICs' ports.
#include <fmt/format.h>

#include <array>

#include "host/rules/groups.hpp"
#include "host/rules/queries.hpp"

namespace tensorwire::host {

namespace {

std::string link_text(const PciLink& link) { return fmt::format("{} GT/s x{}", link.gt_per_s, link.width); }

void nic_link_downgraded(const Host& host, Judgement& judgement) {
  for (const PciDevice& nic : host.nics) {
    if (!nic.link || !nic.best_link) continue;
    if (nic.link->gt_per_s >= nic.best_link->gt_per_s && nic.link->width >= nic.best_link->width) continue;
    judgement.found(
        Confidence::kCertain, "NIC " + nic.address,
        fmt::format("the PCIe link runs at {}, the NIC can do {}", link_text(*nic.link), link_text(*nic.best_link)),
        "put the NIC into a slot that has all lanes, seat it anew, look for a firmware or BIOS update",
        {evidence(nic.link, link_text(*nic.link)), evidence(nic.best_link, link_text(*nic.best_link))});
  }
}

void gpu_link_narrow(const Host& host, Judgement& judgement) {
  for (const Gpu& gpu : host.gpus) {
    // Idle GPUs lower the speed of the link, never its width.
    if (!gpu.pci.link || !gpu.pci.best_link || gpu.pci.link->width >= gpu.pci.best_link->width) continue;
    judgement.found(
        Confidence::kCertain, "GPU " + gpu.pci.address,
        fmt::format("the PCIe link has {} lanes of {}", gpu.pci.link->width, gpu.pci.best_link->width),
        "seat the card anew, or put it into a slot that has all lanes",
        {evidence(gpu.pci.link, link_text(*gpu.pci.link)), evidence(gpu.pci.best_link, link_text(*gpu.pci.best_link))});
  }
}

void flapping_link(const Host& host, Judgement& judgement) {
  constexpr std::uint64_t kMany = 10;
  for (const PortView& view : roce_ports(host)) {
    const Fact<Counters> none;
    const auto& statistics = view.netdev != nullptr ? view.netdev->statistics : none;
    const auto of_driver = counter(statistics, "link_down_events_phy");
    const auto of_port = counter(view.port->counters, "link_downed");
    if (std::max(of_driver.value_or(0), of_port.value_or(0)) < kMany) continue;
    std::vector<std::string> seen;
    if (of_driver) seen.push_back(evidence(statistics, fmt::format("link_down_events_phy: {}", *of_driver)));
    if (of_port) seen.push_back(fmt::format("{}/counters/link_downed: {}", view.port->path, *of_port));
    judgement.found(Confidence::kLikely, view.device->name,
                    "the link went down many times: each time the GID table is built anew and "
                    "queue pairs run into their retry limit",
                    "change cable or transceiver, look at the switch port; `dmesg | grep -i link` has the times", seen);
  }
}

void symbol_errors(const Host& host, Judgement& judgement) {
  constexpr std::uint64_t kMany = 1000;
  for (const PortView& view : qos_ports(host)) {
    const auto count = counter(view.netdev->statistics, "rx_pcs_symbol_err_phy");
    if (count.value_or(0) < kMany) continue;
    judgement.found(Confidence::kPossible, view.netdev->name,
                    "the receiver sees bit errors that error correction does not mend",
                    "clean or change the cable or transceiver",
                    {evidence(view.netdev->statistics, fmt::format("rx_pcs_symbol_err_phy: {}", *count))});
  }
}

// clang-format off
constexpr std::array kLinkRules = {
    Rule{"TW-LINK-001", Severity::kWarning, "a NIC's PCIe link is below its best",
         "A slot with fewer lanes, a card that is not well seated, or firmware that trained the link too low. Half the "
         "lanes are half the rate, and a NIC that cannot empty its buffers pauses its switch.",
         nic_link_downgraded},
    Rule{"TW-LINK-002", Severity::kWarning, "a GPU's PCIe link has too few lanes",
         "The speed of an idle GPU's link says nothing: it drops to save power. Its width does not.",
         gpu_link_narrow},
    Rule{"TW-LINK-003", Severity::kWarning, "the port's link flaps",
         "Setting PFC takes the link down once; ten times and more since the driver was loaded is a cable, a transceiver "
         "or a daemon (lldpad).",
         flapping_link},
    Rule{"TW-LINK-004", Severity::kWarning, "bit errors on the port's link",
         "Uncorrected symbols become lost packets, of which go-back-N makes more than of congestion.",
         symbol_errors},
};
// clang-format on

}  // namespace

RuleGroup link_rules() { return {"Links: PCIe and cable", kLinkRules}; }

}  // namespace tensorwire::host
