// The environment that is recommended for hosts of each family, and for those where a habit would be wrong.
#include "host/nccl_env.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "host/parse/nccl_log.hpp"
#include "host/test_host.hpp"

namespace tensorwire::host::test {
namespace {

std::string value_of(const NcclEnvironment& environment, std::string_view name) {
  const auto found = std::ranges::find(environment.lines, name, &EnvironmentLine::name);
  return found == environment.lines.end() ? "" : found->value;
}

bool remarks_on(const NcclEnvironment& environment, std::string_view words) {
  return std::ranges::any_of(environment.remarks,
                             [&](const std::string& remark) { return remark.find(words) != std::string::npos; });
}

TEST(NcclEnv, AHealthyHostGetsWhatWasFoundOnIt) {
  for (const auto& [kind, index] : {std::pair{Kind::kMlx5, "3"}, {Kind::kOfed, "3"}, {Kind::kIntel, "1"}}) {
    const auto environment = nccl_environment(TestHost{kind}.facts(), 26);
    EXPECT_EQ(value_of(environment, "NCCL_IB_GID_INDEX"), index) << to_string(kind);
    EXPECT_EQ(value_of(environment, "NCCL_IB_TC"), "104");
    EXPECT_EQ(value_of(environment, "UCX_IB_TRAFFIC_CLASS"), "104");
    EXPECT_TRUE(value_of(environment, "NCCL_IB_HCA").starts_with("=")) << "prefixes would match too much";
    EXPECT_EQ(value_of(environment, "NCCL_NET_GDR_LEVEL"), "PXB");
  }
}

TEST(NcclEnv, AnotherDscpIsAnotherTrafficClass) {
  EXPECT_EQ(value_of(nccl_environment(TestHost{Kind::kMlx5}.facts(), 24), "NCCL_IB_TC"), "96");
}

TEST(NcclEnv, TheNearestNicComesFirst) {
  const auto list_of = [](const char* second_path) {
    TestHost host{Kind::kMlx5};
    // The first NIC on another root port than its GPU, so that the second one is nearer to a GPU.
    host.link("/sys/bus/pci/devices/0000:3e:00.0", "/sys/devices/pci0000:3a/0000:3a:02.0/0000:3e:00.0")
        .link("/sys/bus/pci/devices/0000:5e:00.0", second_path);
    const auto environment = nccl_environment(host.facts(), 26);
    const auto line = std::ranges::find(environment.lines, "NCCL_IB_HCA", &EnvironmentLine::name);
    return std::pair{line->value, line->reason};
  };
  const auto [list, reason] = list_of("/sys/devices/pci0000:5a/0000:5a:00.0/0000:5b:00.0/0000:5c:01.0/0000:5e:00.0");
  EXPECT_EQ(list, "=mlx5_1:1,mlx5_0:1");
  EXPECT_NE(reason.find("the nearest to a GPU first; mlx5_1 to its GPU: PIX; mlx5_0 to its GPU: PHB"),
            std::string::npos)
      << reason;
  EXPECT_EQ(list_of("/sys/devices/pci0000:5a/0000:5a:02.0/0000:5e:00.0").first, "=mlx5_0:1,mlx5_1:1") << "equally far";
}

TEST(NcclEnv, NoIndexFitsPortsWithDifferentTables) {
  TestHost host{Kind::kMlx5};
  host.no_gid(host.nic(1), 2).no_gid(host.nic(1), 3);
  host.gid(host.nic(1), 4, host.nic(1).address, "IB/RoCE v1").gid(host.nic(1), 5, host.nic(1).address, "RoCE v2");
  const auto environment = nccl_environment(host.facts(), 26);
  EXPECT_EQ(value_of(environment, "NCCL_IB_GID_INDEX"), "");
  EXPECT_TRUE(remarks_on(environment, "no index is right on every port"));
}

TEST(NcclEnv, APortWithoutAddressIsLeftOut) {
  TestHost host{Kind::kMlx5};
  host.no_gid(host.nic(1), 2).no_gid(host.nic(1), 3);
  const auto environment = nccl_environment(host.facts(), 26);
  EXPECT_EQ(value_of(environment, "NCCL_IB_HCA").find(','), std::string::npos);
  EXPECT_TRUE(remarks_on(environment, "has no RoCE v2 entry"));
}

TEST(NcclEnv, Ipv6NeedsAWordOfItsOwn) {
  TestHost host{Kind::kMlx5};
  for (const Nic& nic : host.nics()) {
    host.gid(nic, 2, "2001:db8::10", "IB/RoCE v1").gid(nic, 3, "2001:db8::10", "RoCE v2");
  }
  EXPECT_EQ(value_of(nccl_environment(host.facts(), 26), "NCCL_IB_ADDR_FAMILY"), "AF_INET6");
  EXPECT_EQ(value_of(nccl_environment(TestHost{Kind::kMlx5}.facts(), 26), "NCCL_IB_ADDR_FAMILY"), "");
}

TEST(NcclEnv, WithoutRdmaNothingIsInvented) {
  const auto environment = nccl_environment(TestHost{Kind::kNone}.facts(), 26);
  EXPECT_EQ(value_of(environment, "NCCL_IB_HCA"), "");
  EXPECT_EQ(value_of(environment, "NCCL_IB_TC"), "");
  EXPECT_TRUE(remarks_on(environment, "no RoCE port can be used"));
}

TEST(NcclEnv, WhatIsSetOtherwiseNowIsSaid) {
  TestHost host{Kind::kMlx5};
  host.set("NCCL_IB_TC", "26");
  EXPECT_TRUE(remarks_on(nccl_environment(host.facts(), 26), "now NCCL_IB_TC=26 (environment)"));
}

TEST(NcclEnv, ShellAndJsonSayTheSame) {
  const auto environment = nccl_environment(TestHost{Kind::kMlx5}.facts(), 26);
  EXPECT_NE(shell_text(environment).find("export NCCL_IB_TC=104  # DSCP 26"), std::string::npos);
  const auto parsed = nlohmann::json::parse(json_text(environment));
  EXPECT_EQ(parsed["environment"]["NCCL_IB_TC"]["value"], "104");
  EXPECT_EQ(parsed["environment"].size(), environment.lines.size());
}

TEST(NcclEnv, HabitsAreNamed) {
  TestHost host{Kind::kMlx5};
  host.set("NCCL_IB_TIMEOUT", "22").set("NCCL_NET_GDR_LEVEL", "SYS");
  const auto environment = nccl_environment(host.facts(), 26);
  EXPECT_TRUE(remarks_on(environment, "habit, not fact: NCCL_IB_TIMEOUT=22 (environment)"));
  EXPECT_TRUE(remarks_on(environment, "now NCCL_NET_GDR_LEVEL=SYS (environment)")) << "a distance was measured here";
  EXPECT_FALSE(remarks_on(nccl_environment(TestHost{Kind::kMlx5}.facts(), 26), "habit, not fact"));
  TestHost without{Kind::kNone};
  without.set("NCCL_NET_GDR_LEVEL", "5");
  EXPECT_TRUE(remarks_on(nccl_environment(without.facts(), 26), "habit, not fact: NCCL_NET_GDR_LEVEL=5"));
}

// Lines as NCCL 2.18 to 2.28 write them.
constexpr std::string_view kLog =
    "host-a:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:192.0.2.10<0>\n"
    "host-a:1:1 [0] NCCL INFO Using network IB\n"
    "NCCL version 2.27.5+cuda12.9\n"
    "host-a:1:9 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA\n"
    "host-a:1:9 [0] NCCL INFO Channel 01/0 : 9[1] -> 0[0] [receive] via NET/IB/1(8)/GDRDMA/Shared\n"
    "host-a:1:9 [0] NCCL INFO Channel 02/0 : 0[0] -> 1[0] [send] via NET/IB/1/GDRDMA(PCI)\n"
    "host-a:1:9 [0] NCCL INFO Channel 03/0 : 0[b3000] -> 1[b3000] [send] via NET/IB/1\n"
    "host-a:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 2[2] via P2P/CUMEM/read\n"
    "host-a:1:9 [0] NCCL INFO Channel 04/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n";

TEST(NcclEnv, ALogSaysWhatHappenedWithLineNumbers) {
  const std::string text = what_happened(parse_nccl_log(kLog, "job.log"));
  for (const char* words :
       {"NCCL 2.27.5",
        "network chosen (1 line)\n  2: ", "(GDRDMA) (3 lines)\n  4: channel 00/0, rank 1 -> 0 (receive), NET/IB/0\n",
        "  5: channel 01/0, rank 9 -> 0 (receive), NET/IB/1(8)\n", "  6: channel 02/0, rank 0 -> 1 (send), NET/IB/1\n",
        "(no GDRDMA) (2 lines)\n  7: channel 03/0, rank 0 -> 1 (send), NET/IB/1\n  9: channel 04/0, rank 0 -> 1 "
        "(send), "
        "NET/Socket/0\n"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
  EXPECT_EQ(text.find("P2P"), std::string::npos);
  EXPECT_NE(what_happened(parse_nccl_log("nothing\n", "job.log")).find("does not say which network"),
            std::string::npos);
  EXPECT_NE(what_happened(parse_nccl_log("a NCCL INFO Using network IB\n", "job.log")).find("names no channel"),
            std::string::npos);
}

TEST(NcclEnv, TheSameAsJson) {
  const auto parsed = nlohmann::json::parse(what_happened_json(parse_nccl_log(kLog, "job.log")));
  EXPECT_EQ(parsed["networks"][0]["line"], 2);
  ASSERT_EQ(parsed["channels"].size(), 5U);
  EXPECT_EQ(parsed["channels"][1]["from"], 9);
  EXPECT_EQ(parsed["channels"][3]["gdrdma"], false);
  EXPECT_EQ(parsed["channels"][4]["network"], "Socket/0");
}

}  // namespace
}  // namespace tensorwire::host::test
