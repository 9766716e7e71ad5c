// Every numbered case of the collection of public bug reports that this room was written against: what happened, in a
// line, and the test that has it, with the rules that fire there (a '!' before those that must stay silent). What no
// host shows by itself is listed with the reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "host/rule_case.hpp"

namespace tensorwire::host::test {

namespace {

struct NamedCase {
  std::string test;
  std::string rules;  ///< as the case has them, a blank between them
};

struct Numbered {
  int number;
  const char* what;
  std::vector<NamedCase> cases;
};

// clang-format off
const std::vector<Numbered> kNumbered = {
    {1, "A pinned index leads to a link-local address; the index of the routable one works", {{"Nccl769_Index1IsLinkLocal", "GID-003 NCCL-013"}}},
    {2, "Error 12 at the first collective: the default entry is RoCE v1", {{"Nccl426_Error12AtOnce", "GID-002 NCCL-014"}}},
    {4, "The usable entry moved away from under a pinned index", {{"Sparkring186_PinnedIndexBecameAHole", "GID-004 GID-005 NCCL-013"}, {"MiaAI10_ComposeDefaultOf0", "GID-003"}, {"MiaAI10_NotANumber", "GID-008"}, {"Nccl_EmptyIndexIsIgnored", ""}}},
    {5, "Recovery after a link flap uses an index that is no longer right", {{"Nccl2157_LinkFlaps", "LINK-003 NCCL-017"}}},
    {6, "NCCL stops at a GID entry whose type cannot be read", {{"Nccl_SparseGidTable", "NCCL-020"}}},
    {7, "Thor 2 with IPv6 addresses only, and a choice that wants IPv4", {{"Uccl803_BroadcomWithIpv6Only", "GID-006"}}},
    {8, "Other engines find no entry, or ask for one that is not there", {{"Mooncake1593_NoSuitableGid", "GID-001"}, {"Mooncake1592_Gid244", "GID-004"}}},
    {9, "The other end speaks from a link-local address", {{"Index9_RemoteIsLinkLocal", "NCCL-013"}}},
    {10, "An IPv6 fabric needs its family to be said", {{"JuniperSlaac_Ipv6AndSaid", ""}, {"Uccl803_BroadcomWithIpv6Only", "GID-006"}}},
    {11, "Queue pairs between rails that nothing joins", {{"Nccl2013_CrossedRails", "NCCL-013 NET-004 NET-006"}}},
    {13, "The device list pairs a port of another subnet", {{"Ainode89_AutoconfiguredPort", "GID-009"}}},
    {14, "Rings without a switch: no memory to register, settings in the image", {{"Aicad1_NoCma", "NCCL-016 PROC-004"}, {"Aicad1_ImageBringsNcclConf", "NCCL-003"}}},
    {15, "No route, or a neighbour that does not answer", {{"Index15_NoRouteAndNoAnswer", "NCCL-013 NET-005 NET-006"}}},
    {16, "Two functions of a card in one subnet", {{"Ucx5598_TwoFunctionsInOneSubnet", "NET-001"}}},
    {17, "All NICs in one subnet", {{"Nccl1269_AllNicsInOneSubnet", "NET-001"}}},
    {19, "Mixed vendors, rails not in the order of the GPUs", {{"Nccl1526_RailsAgainstTheOrderOfGpus", "NCCL-014 NET-007"}}},
    {20, "GPUs of the same number on different rails", {{"Nccl1755_SameGpuOnAnotherRail", "NET-007"}}},
    {22, "Error 12: the MTUs differ", {{"Nccl709_OversizedPackets", "MTU-001 MTU-003 NCCL-014"}}},
    {23, "Local access violation since NCCL 2.20: the MTUs differ", {{"Nccl1524_ViolationSince220", "NCCL-019"}}},
    {25, "Half of a 200 Gb/s port: one of two functions, a small MTU, a link of x2", {{"DgxSpark102_HalfOfThePort", "DEV-008 MTU-001 PROC-004"}, {"DgxSpark25_TrainedAtX2", "LINK-001"}}},
    {26, "GPU-initiated queue pairs do not get the forced class", {{"Nccl2383_GpuInitiatedUnmarked", "QOS-009"}, {"Nccl2383_Remedied", ""}}},
    {28, "All of it in priority 0", {{"Byteps179_AllInPriority0", "ECN-005 QOS-005"}}},
    {29, "Losses although congestion control works", {{"Nccl394_LossInSpiteOfDcqcn", "ECN-006"}}},
    {31, "Retries used up on a fabric that drops", {{"Ucx6000_RetryCountExceeded", "PFC-001"}}},
    {32, "The ends agree on congestion control by round-trip time, over a bond", {{"Ucx11955_EceLeavesDcqcn", "ECN-009"}, {"Ucx11955_Remedied", ""}}},
    {34, "lldpad flaps links and overwrites settings", {{"Openlldp125_Lldpad", "LINK-003 QOS-006"}}},
    {35, "A receiver with slow buffers pauses its switch", {{"Torchcomms3054_SlowReceiver", "PFC-005"}}},
    {36, "A port went down while the job ran", {{"Nccl2157_LinkFlaps", "LINK-003 NCCL-017"}}},
    {37, "Access control redirects what GPU and NIC send each other", {{"Nccl304_Acs", "GDR-001 NCCL-014"}}},
    {38, "The BIOS said that access control is off", {{"Nccl523_BiosSaidOff", "GDR-001"}}},
    {40, "Flushes hide the first error; without root nothing is shown", {{"Nccl1737_FlushesAndNoRoot", "NCCL-015"}}},
    {41, "Access control halves the rate", {{"NcclTests112_AcsHalvesTheRate", "GDR-001"}}},
    {42, "Registration ends with a bad address", {{"Index42_BadAddress", "GDR-003 NCCL-016"}}},
    {43, "Registering a DMA-BUF: protocol not supported", {{"Perftest280_DmabufError93", "NCCL-016"}}},
    {44, "No peer memory interface in the kernel's own ib_core", {{"NvPeerMemory79_InboxIbCore", "GDR-003"}, {"Talos12021_LoadedInVain", "GDR-004"}}},
    {46, "The module is loaded and GPUDirect is off", {{"Nccl1939_GdrDisabledThoughLoaded", "GDR-004 NCCL-012"}}},
    {47, "An NCCL that does not look where the new module is", {{"Nccl1676_OldNcclAndNewPeermem", "GDR-005 NCCL-012"}}},
    {48, "Which of the module's files this NCCL looks at", {{"Nccl1676_OldNcclAndNewPeermem", "GDR-005 NCCL-012"}}},
    {49, "GB10 has no GPUDirect, and that is no fault", {{"DgxSpark352051_Gb10HasNoGdr", ""}}},
    {50, "The RDMA driver takes no DMA-BUF", {{"Nccl778_DmabufNotSupported", "GDR-010 NCCL-016"}}},
    {51, "Registration fails at the size of BAR 1", {{"Index51_Bar1IsFull", "GDR-007 NCCL-016"}}},
    {52, "Cards that cannot do it at all", {{"Flagcx61_GeForce", "GDR-009"}}},
    {53, "GPU and NIC are too far apart, or a virtual machine hides how far", {{"Nccl1464_TooFar", "GDR-006 NCCL-012"}, {"AksRdma36_FlatTreeOfAVirtualMachine", "GDR-006"}}},
    {55, "The firmware forces relaxed ordering", {{"Nccl531_OrderingForced", "GDR-011"}}},
    {56, "The IOMMU translates on an EPYC host", {{"Nccl1285_EpycIommu", "GDR-002"}}},
    {57, "Too little memory may be locked", {{"Memlock64KiB", "NCCL-016 PROC-001"}}},
    {58, "The job works over sockets: no devices, no library, or switched off", {{"Vllm6610_ContainerWithoutDevices", "DEV-001 NCCL-010"}, {"Sglang1427_ImageWithoutLibibverbs", "NCCL-010"}, {"Nccl1591_DisableLeftIn", "NCCL-001 NCCL-010"}}},
    {59, "The provider library is older than the driver", {{"Sglang16242_ProviderAbi6", "DEV-003 NCCL-011"}}},
    {60, "The interface is in another network namespace", {{"NetnsWithoutNetdev", "GID-007 NCCL-013"}}},
    {61, "One node may not open a device, and the mismatch is ignored", {{"Nccl2428_OneNodeRefused", "DEV-002 NCCL-002"}}},
    {62, "Devices are seen and only some may be used", {{"DevicePlugin93_OnlySomeNodesAreMounted", "DEV-002"}, {"NetnsWithoutNetdev", "GID-007 NCCL-013"}}},
    {64, "irdma reports a LID on Ethernet", {{"Nccl622_IrdmaReportsALid", ""}}},
    {65, "InfiniBand and Ethernet mixed; names that are prefixes", {{"Nccl1412_InfinibandAmongThem", "DEV-005"}, {"NcclTests263_NamesArePrefixes", "DEV-007"}}},
    {67, "A bond gives the rate of one link", {{"Nccl1015_BondGivesHalf", "NET-002"}}},
    {68, "Protection errors with Broadcom whose cause nobody found", {{"Ucx11048_ProtectionWithoutAcs", "NCCL-014"}}},
    {70, "Ranks meet over the loopback interface", {{"Pytorch38702_Loopback", "DEV-009 NCCL-018"}}},
    {71, "No route to a host that answers pings", {{"Sglang3820_NoRouteToHost", "NCCL-018"}}},
    {73, "Two NCCLs in one process", {{"Vllm42354_PipAndSystemNccl", "PROC-002"}}},
    {74, "NCCL lost track of a request of its own", {{"Nccl2334_LostClearance", "NCCL-021"}}},
    {76, "irdma has no index 3", {{"NcclTests227_IrdmaHasNoIndex3", "GID-004 NCCL-013"}}},
    {77, "Pauses at the sender, as they should be", {{"Perftest284_PausesAtTheSenderAreAsTheyShouldBe", "!PFC-006"}}},
};

struct NotShown {
  int number;
  const char* what;
  const char* why;
};

constexpr std::array kNotShown = {
    NotShown{18, "A VLAN tag at one end only",
             "the tag of the other end shows there only; here the first message ends with error 12, which TW-NCCL-014 names"},
    NotShown{72, "A job that hangs in a channel that is not NCCL's",
             "nothing of RDMA is wrong or says anything; the process would have to be stopped and looked into"},
};
// clang-format on

/// Numbers under which the collection has nothing of its own.
constexpr std::array kUnused = {3, 12, 21, 24, 27, 30, 33, 39, 45, 54, 63, 66, 69, 75};
constexpr int kLast = 77;

/// Reported without a number: NCCL 2.28.9's crash on NICs that are not mlx5.
constexpr const char* kWithoutNumber = "Nccl2289_GinOnOtherNics";

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<const RuleCase*> all_field_cases() {
  std::vector<const RuleCase*> all;
  for (const auto cases : {field_cases(), device_field_cases()}) {
    for (const RuleCase& one : cases) all.push_back(&one);
  }
  return all;
}

TEST(FieldCases, EveryNumberIsATestOrHasAReason) {
  std::multiset<int> numbers;
  for (const Numbered& row : kNumbered) numbers.insert(row.number);
  for (const NotShown& row : kNotShown) {
    numbers.insert(row.number);
    EXPECT_NE(std::string{row.why}, "") << row.number;
  }
  for (const int number : kUnused) numbers.insert(number);
  for (int number = 1; number <= kLast; ++number) EXPECT_EQ(numbers.count(number), 1U) << number;
  EXPECT_EQ(numbers.size(), static_cast<std::size_t>(kLast));
}

TEST(FieldCases, EveryNumberSaysWhatItsTestExpects) {
  const auto all = all_field_cases();
  for (const Numbered& row : kNumbered) {
    EXPECT_FALSE(row.cases.empty()) << row.number;
    for (const NamedCase& named : row.cases) {
      const auto found = std::ranges::find_if(all, [&](const RuleCase* one) { return one->name == named.test; });
      ASSERT_NE(found, all.end()) << row.number << ": there is no " << named.test;
      EXPECT_EQ(joined((*found)->rules), named.rules) << row.number << ", " << named.test;
    }
  }
}

TEST(FieldCases, EveryTestHasANumber) {
  for (const RuleCase* one : all_field_cases()) {
    const bool numbered = std::ranges::any_of(kNumbered, [&](const Numbered& row) {
      return std::ranges::find(row.cases, one->name, &NamedCase::test) != row.cases.end();
    });
    EXPECT_TRUE(numbered || std::string{one->name} == kWithoutNumber) << one->name;
  }
}

}  // namespace

}  // namespace tensorwire::host::test
