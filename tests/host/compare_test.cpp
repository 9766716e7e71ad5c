// Comparing hosts: the majority and who differs.
#include "host/compare/compare.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "host/test_host.hpp"
#include "host/tree/tools.hpp"

namespace tensorwire::host::test {

namespace {

NamedProperties healthy(const std::string& name, Kind kind = Kind::kMlx5) {
  return {name, properties_of(TestHost{kind}.facts())};
}

/// A host that differs in what `change` does.
template <class Change>
NamedProperties odd(const std::string& name, Change change) {
  TestHost host{Kind::kMlx5};
  change(host);
  return {name, properties_of(host.facts())};
}

TEST(Compare, EqualHostsDoNotDiffer) {
  const Comparison comparison = compare({healthy("a"), healthy("b"), healthy("c")});
  EXPECT_TRUE(comparison.differences.empty()) << comparison_text(comparison);
  EXPECT_EQ(exit_status(comparison), 0);
}

TEST(Compare, NamesMajorityAndOutliers) {
  std::vector<NamedProperties> hosts;
  const HostProperties alike = healthy("any").properties;
  for (int i = 0; i < 998; ++i) hosts.push_back({"host" + std::to_string(i), alike});
  hosts.push_back(odd("odd1", [](TestHost& host) {
    host.tool(tool::kDcbPfc, "eth2", R"({"prio_pfc":[false,false,false,false,false,false,false,false]})");
  }));
  hosts.push_back(odd("odd2", [](TestHost& host) { host.set("NCCL_IB_TC", "26"); }));
  const Comparison comparison = compare(hosts);
  ASSERT_EQ(comparison.differences.size(), 2U) << comparison_text(comparison);
  const Difference& pfc = comparison.differences[0];
  EXPECT_EQ(pfc.property, "lossless priorities");
  EXPECT_EQ(pfc.severity, Severity::kError);
  EXPECT_EQ(pfc.majority, "3");
  EXPECT_EQ(pfc.agreeing, 999U);
  ASSERT_EQ(pfc.outliers.size(), 1U);
  EXPECT_EQ(pfc.outliers[0].value, "3; none");
  EXPECT_EQ(pfc.outliers[0].hosts, std::vector<std::string>{"odd1"});
  EXPECT_EQ(comparison.differences[1].property, "NCCL_IB_TC");
  EXPECT_EQ(exit_status(comparison), 2);
}

TEST(Compare, TwoHostsHaveNoMajority) {
  const Comparison comparison = compare({healthy("a"), odd("b", [](TestHost& host) {
                                           for (const Nic& nic : host.nics()) host.file(nic.net() + "/mtu", "1500\n");
                                         })});
  ASSERT_EQ(comparison.differences.size(), 1U);
  EXPECT_TRUE(comparison.differences[0].majority.empty());
  EXPECT_EQ(comparison.differences[0].outliers.size(), 2U);
  EXPECT_NE(comparison_json(comparison).find(R"("majority":null)"), std::string::npos);
}

TEST(Compare, AVariableThatIsMissingIsNotSet) {
  const Comparison comparison =
      compare({healthy("a"), healthy("b"), odd("c", [](TestHost& host) { host.set("NCCL_IB_TC", ""); })});
  ASSERT_EQ(comparison.differences.size(), 1U);
  EXPECT_EQ(comparison.differences[0].outliers[0].value, "not set");
}

TEST(Compare, WhatIsNotKnownIsNoDifference) {
  const Comparison comparison = compare({healthy("a"), odd("b", [](TestHost& host) {
                                           for (const Nic& nic : host.nics()) host.no_tool(tool::kDcbPfc, nic.netdev);
                                         })});
  EXPECT_TRUE(comparison.differences.empty()) << comparison_text(comparison);
}

TEST(Compare, EachPropertyIsSeen) {
  const auto differs = [](const char* property, auto change) {
    const Comparison comparison = compare({healthy("a"), healthy("b"), odd("c", change)});
    for (const Difference& difference : comparison.differences) {
      if (difference.property == property) return true;
    }
    return false;
  };
  EXPECT_TRUE(differs("addresses", [](TestHost& host) {
    for (const Nic& nic : host.nics())
      host.gid(nic, 2, "2001:db8::1", "IB/RoCE v1").gid(nic, 3, "2001:db8::1", "RoCE v2");
  }));
  EXPECT_TRUE(differs("addresses", [](TestHost& host) { host.set("NCCL_IB_GID_INDEX", "2"); })) << "RoCE v1 and v2";
  EXPECT_TRUE(differs("addresses", [](TestHost& host) { host.set("NCCL_IB_GID_INDEX", "7"); })) << "an empty entry";
  EXPECT_TRUE(differs("MTU of RDMA packets", [](TestHost& host) {
    host.tool(tool::kVerbsDevices, "", "hca_id:\tmlx5_0\n\t\tport:\t1\n\t\t\tactive_mtu:\t\t1024 (3)\n");
  }));
  EXPECT_TRUE(differs("trust", [](TestHost& host) { host.tool(tool::kDcbApp, "eth2", "{}"); }));
  EXPECT_TRUE(differs("DSCP to priority",
                      [](TestHost& host) { host.tool(tool::kDcbApp, "eth2", R"({"dscp_prio":[[46,3]]})"); }));
  EXPECT_TRUE(differs("RDMA devices", [](TestHost& host) { host.file(host.nic().port() + "/state", "1: DOWN\n"); }));
  EXPECT_TRUE(differs("kind of device",
                      [](TestHost& host) { host.file(host.nic().port() + "/rate", "200 Gb/sec (4X HDR)\n"); }));
  EXPECT_TRUE(differs("subnets", [](TestHost& host) {
    host.file("/proc/net/route", "eth2\t000200CB\t00000000\t0001\t0\t0\t0\tC0FFFFFF\t0\t0\t0\n");
  }));
  EXPECT_TRUE(differs("NIC firmware", [](TestHost& host) { host.file(host.nic().ib() + "/fw_ver", "20.1.2\n"); }));
  EXPECT_TRUE(differs("kernel", [](TestHost& host) { host.file("/proc/sys/kernel/osrelease", "5.15.0\n"); }));
  EXPECT_TRUE(differs("GPU driver", [](TestHost& host) {
    host.file("/proc/driver/nvidia/version",
              "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.1.2  Release\n");
  }));
  EXPECT_TRUE(differs("NCCL library", [](TestHost& host) {
    host.file("/proc/target/maps", "1-2 r-xp 0 08:01 1 /usr/lib/libnccl.so.2.20.3\n");
  }));
  const Comparison ofed = compare({healthy("a", Kind::kOfed), healthy("b", Kind::kOfed), [] {
                                     TestHost host{Kind::kOfed};
                                     host.file(host.nic().net() + "/ecn/roce_np/cnp_dscp", "46\n");
                                     return NamedProperties{"c", properties_of(host.facts())};
                                   }()});
  EXPECT_EQ(ofed.differences.at(0).property, "DSCP of CNPs");
}

TEST(CompareFieldCases, Nccl1526_MlxAndBroadcomTogether) {
  const Comparison comparison = compare({healthy("a"), healthy("b"), healthy("c", Kind::kBroadcom)});
  EXPECT_TRUE(std::ranges::any_of(comparison.differences, [](const Difference& one) {
    return one.property == "kind of device" && one.outliers.at(0).hosts == std::vector<std::string>{"c"};
  })) << comparison_text(comparison);
}

TEST(CompareFieldCases, Nccl1755_RailsInAnotherOrder) {
  const Comparison comparison =
      compare({healthy("a"), healthy("b"), odd("c", [](TestHost& host) {
                 host.file("/proc/net/route",
                           "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
                           "eth3\t000200C0\t00000000\t0001\t0\t0\t0\tC0FFFFFF\t0\t0\t0\n"
                           "eth2\t006433C6\t00000000\t0001\t0\t0\t0\tC0FFFFFF\t0\t0\t0\n");
               })});
  ASSERT_EQ(comparison.differences.size(), 1U) << comparison_text(comparison);
  EXPECT_EQ(comparison.differences[0].property, "rails in the order of GPUs");
  EXPECT_EQ(comparison.differences[0].outliers.at(0).value, "1 0");
}

TEST(CompareFieldCases, Nccl709And1524_MtuOfOneHost) {
  const Comparison comparison = compare({healthy("a"), healthy("b"), odd("c", [](TestHost& host) {
                                           for (const Nic& nic : host.nics()) host.file(nic.net() + "/mtu", "1500\n");
                                         })});
  ASSERT_EQ(comparison.differences.size(), 1U);
  EXPECT_EQ(comparison.differences[0].property, "MTU");
  EXPECT_EQ(comparison.differences[0].outliers.at(0).hosts, std::vector<std::string>{"c"});
}

TEST(CompareFieldCases, Nccl2428_OneHostHasFewerDevices) {
  const Comparison comparison =
      compare({healthy("a"), healthy("b"),
               odd("c", [](TestHost& host) { host.file(host.nic().port() + "/state", "1: DOWN\n"); })});
  ASSERT_FALSE(comparison.differences.empty());
  EXPECT_EQ(comparison.differences[0].property, "RDMA devices");
}

TEST(CompareFieldCases, Ainode89_DeviceListsDiffer) {
  const Comparison comparison =
      compare({healthy("a"), healthy("b"), odd("c", [](TestHost& host) { host.set("NCCL_IB_HCA", "mlx5_1,mlx5_0"); })});
  ASSERT_EQ(comparison.differences.size(), 1U);
  EXPECT_EQ(comparison.differences[0].property, "NCCL_IB_HCA");
}

}  // namespace

}  // namespace tensorwire::host::test
